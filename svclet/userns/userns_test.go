package userns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestRangesAreDividedBetweenPods(t *testing.T) {
	const line = "0: svclet 65536 7208960\n"
	for _, test := range []struct {
		name, users, groups string
		maxPods             int32
		perPod              int64
		want                Range
		err                 string
	}{
		{name: "enough", users: line, groups: line, maxPods: 110, perPod: Block, want: Range{65536, 7208960}},
		{name: "too few", users: line, groups: line, maxPods: 111, perPod: Block, err: "7208960 subordinate users of svclet are not enough for 111 pods (maxPods) of 65536"},
		{name: "other groups", users: line, groups: "0: svclet 131072 7208960\n", err: "the subordinate users and groups of svclet differ"},
		{name: "two", users: line + line, groups: line + line, err: "svclet has 2 ranges of subordinate users"},
		{name: "odd", users: "0: svclet 65537 65536", groups: "0: svclet 65537 65536", maxPods: 1, perPod: Block, err: "must be multiples of 65536"},
		{name: "those of the machine", users: "0: svclet 0 65536", groups: "0: svclet 0 65536", maxPods: 1, perPod: Block, err: "must be at least 65536"},
		{name: "no number", users: "0: svclet x 65536", groups: "0: svclet x 65536", err: "invalid syntax"},
		{name: "no block", users: line, groups: line, maxPods: 1, perPod: 1000, err: "userNamespaces.idsPerPod is 1000: must be a positive multiple of 65536"},
		{name: "more than there are", users: "0: svclet 4294901760 131072", groups: "0: svclet 4294901760 131072", maxPods: 2, perPod: Block, err: "lower userNamespaces.idsPerPod"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseSubIDs(test.users, test.groups)
			if err == nil {
				err = got.check(test.maxPods, test.perPod)
			}
			switch {
			case test.err == "" && (err != nil || got != test.want):
				t.Errorf("%v, %v", got, err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Error(err)
			}
		})
	}
}

func newAllocator(t *testing.T, dir string, pods ...types.UID) (*Allocator, error) {
	t.Helper()
	podDir := func(uid types.UID) string { return filepath.Join(dir, string(uid)) }
	for _, uid := range pods {
		if err := os.MkdirAll(podDir(uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{Range: Range{Block, 2 * Block}, PerPod: Block, PodDir: podDir}, pods)
}

func TestAPodKeepsItsUsersAndSharesThemWithNoOther(t *testing.T) {
	dir := t.TempDir()
	a, err := newAllocator(t, dir, "p", "q", "r")
	if err != nil {
		t.Fatal(err)
	}
	first := func(uid types.UID) uint32 {
		t.Helper()
		n, err := a.Namespace(uid)
		if err != nil {
			t.Fatal(err)
		}
		return n.Uids[0].HostId
	}
	if p, q, again := first("p"), first("q"), first("p"); p != Block || q != 2*Block || again != p {
		t.Errorf("%d, %d, %d", p, q, again)
	}
	if a, err = newAllocator(t, dir, "p", "q", "r"); err != nil {
		t.Fatal(err)
	}
	if p, q := first("p"), first("q"); p != Block || q != 2*Block {
		t.Errorf("after a restart: %d, %d", p, q)
	}
	if _, err := a.Namespace("r"); err == nil || err.Error() != "all 131072 users for the user namespaces of pods are in use" {
		t.Error(err)
	}
	a.Release("p")
	if r := first("r"); r != Block {
		t.Errorf("what p has freed: %d", r)
	}
	if _, err := newAllocator(t, dir, "p", "q", "r"); err == nil || !strings.Contains(err.Error(), "has the same users") {
		t.Errorf("two pods with the same users: %v", err)
	}
}

func TestADamagedRecordNamesItsFile(t *testing.T) {
	for _, content := range []string{"{", "{}", `{"uidMappings":[{"hostId":1,"length":65536}],"gidMappings":[{"hostId":1,"length":65536}]}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, "p", recordFile)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newAllocator(t, dir, "p"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", content, err)
		}
	}
	a, err := newAllocator(t, filepath.Join(t.TempDir(), "absent"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Namespace("p"); err == nil {
		t.Error("users that cannot be saved")
	}
}

func TestAnEmptyRecordIsAbsent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p", recordFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := newAllocator(t, dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := a.Namespace("p"); err != nil || n.Uids[0].HostId != Block {
		t.Errorf("%v, %v", n, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("the directory of the pod has %v, %v", files, err)
	}
}
