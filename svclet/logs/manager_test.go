package logs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// tree returns the paths of all files and links below a directory.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			path, err = filepath.Rel(root, path)
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

func expectTree(t *testing.T, root string, want ...string) {
	t.Helper()
	if got := tree(t, root); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

func TestALinksNameIdentifiesTheContainer(t *testing.T) {
	h := newFixture(t, 2, map[string]string{"0.log": "x"})
	link := filepath.Join(h.root, "containers", "p_ns_c-id-c.log")
	for _, c := range []struct {
		name    string
		prepare func() error
	}{
		{"new", func() error { return nil }},
		{"again", func() error { return nil }},
		{"in place of one to elsewhere", func() error {
			return firstError(os.Remove(link), os.Symlink("/elsewhere", link))
		}},
		{"in place of a file", func() error {
			return firstError(os.Remove(link), os.WriteFile(link, nil, 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := firstError(c.prepare(), h.Link(h.container)); err != nil {
				t.Fatal(err)
			}
			if to, err := os.Readlink(link); err != nil || to != h.container.Path {
				t.Errorf("leads to %q, %v", to, err)
			}
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAContainerWithoutLogHasNoLink(t *testing.T) {
	h := newFixture(t, 2, nil)
	if err := h.Link(h.container); err != nil {
		t.Fatal(err)
	}
	expectTree(t, h.root)
}

func TestLinkNamesAreWithinTheLimit(t *testing.T) {
	c := Container{ID: strings.Repeat("f", 64), PodName: strings.Repeat("p", 200), PodNamespace: "ns", Name: "c"}
	if name := c.link(); len(name) != 255 || !strings.HasSuffix(name, "f.log") {
		t.Errorf("%d: %s", len(name), name)
	}
}

func TestRemoveRemovesAllLogsOfAContainer(t *testing.T) {
	h := newFixture(t, 5, map[string]string{"0.log": "x", "0.log.20260101-000000": "x", "0.log.20250101-000000.gz": "x", "1.log": "x"})
	if err := h.Link(h.container); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.Remove(h.container); err != nil {
			t.Fatal(err)
		}
		expectTree(t, h.root, "pods/ns_p_uid/c/1.log")
	}
	if err := h.Remove(Container{ID: "gone", Path: filepath.Join(h.root, "pods", "none", "c", "0.log")}); err != nil {
		t.Error(err)
	}
}

func TestRemovePodRemovesAllLogsOfAPod(t *testing.T) {
	h := newFixture(t, 5, map[string]string{"0.log": "x", "1.log": "x"})
	other := Container{ID: "o", PodNamespace: "ns", PodName: "other", Name: "c", Path: filepath.Join(h.root, "pods", "ns_other_uid2", "c", "0.log")}
	h.options.Running = func() []Container { return []Container{other} }
	if err := firstError(os.MkdirAll(filepath.Dir(other.Path), 0o755), os.WriteFile(other.Path, nil, 0o600), h.Link(other), h.Link(h.container)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.RemovePod("uid"); err != nil {
			t.Fatal(err)
		}
		expectTree(t, h.root, "containers/other_ns_c-o.log", "pods/ns_other_uid2/c/0.log")
	}
}

func TestASweepRemovesLogsOfUnknownPods(t *testing.T) {
	h := newFixture(t, 5, map[string]string{"0.log": "x"})
	links, pods := filepath.Join(h.root, "containers"), filepath.Join(h.root, "pods")
	gone := filepath.Join(pods, "ns_gone_4f6a6f2e-90b5-4c3e-9f0e-6d1f0a6b7c11")
	running := Container{ID: "r", PodNamespace: "ns", PodName: "p", Name: "c", Path: filepath.Join(h.dir, "none.log")}
	h.options.Running = func() []Container { return []Container{running} }
	if err := firstError(
		h.Link(h.container),
		os.MkdirAll(filepath.Join(gone, "c"), 0o755),
		os.WriteFile(filepath.Join(gone, "c", "0.log"), nil, 0o600),
		os.MkdirAll(filepath.Join(pods, "ns_static_0123456789abcdef0123456789abcdef"), 0o755),
		os.Symlink(filepath.Join(gone, "c", "0.log"), filepath.Join(links, "gone_ns_c-g.log")),
		os.Symlink(running.Path, filepath.Join(links, running.link())),
		os.Symlink("/nowhere", filepath.Join(links, "not-ours")),
		os.WriteFile(filepath.Join(links, "file.log"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(func(uid types.UID) bool { return uid == "uid" }); err != nil {
		t.Fatal(err)
	}
	expectTree(t, h.root, "containers/file.log", "containers/not-ours", "containers/p_ns_c-id-c.log", "containers/p_ns_c-r.log", "pods/ns_p_uid/c/0.log")
	if left, err := os.ReadDir(pods); err != nil || len(left) != 1 {
		t.Errorf("the directory of logs has %v, %v", left, err)
	}
}

func TestASweepKeepsWhatNoAgentHasMade(t *testing.T) {
	h := newFixture(t, 5, nil)
	pods := filepath.Join(h.root, "pods")
	const uid = "4f6a6f2e-90b5-4c3e-9f0e-6d1f0a6b7c11"
	foreign := []string{
		"journal", "my_database_2026", "ns_p", uid, "Nobody_p_" + uid, "ns_P_" + uid, "ns_p_c_" + uid, "_p_" + uid, "ns__" + uid,
	}
	for _, name := range foreign {
		if err := firstError(os.MkdirAll(filepath.Join(pods, name), 0o755), os.WriteFile(filepath.Join(pods, name, "precious"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"syslog", "ns_file_" + uid} {
		foreign = append(foreign, name)
		if err := os.WriteFile(filepath.Join(pods, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if uids, err := h.Pods(); err != nil || len(uids) > 0 {
		t.Errorf("the pods of such names are %q, %v", uids, err)
	}
	for _, remove := range []func() error{
		func() error { return h.Sweep(func(types.UID) bool { return false }) }, func() error { return h.RemovePod("") }, func() error { return h.RemovePod("journal") },
	} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(pods, name)); err != nil {
			t.Errorf("it is removed: %v", err)
		}
	}
}

func TestASweepReturnsReadErrors(t *testing.T) {
	h := newFixture(t, 5, nil)
	if err := os.RemoveAll(h.root); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(func(types.UID) bool { return true }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAFailedReopenIsAnErrorOnlyWhileTheContainerRuns(t *testing.T) {
	for _, runs := range []bool{true, false} {
		h := newFixture(t, 5, nil)
		h.runtime.err = errors.New("it has ended")
		h.options.Running = func() []Container {
			if len(h.runtime.opened) > 0 && !runs {
				return nil // it has ended before its log was opened
			}
			return []Container{h.container}
		}
		if err := os.MkdirAll(h.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := h.rotateIfNeeded(t.Context(), h.container); (err != nil) != runs {
			t.Errorf("runs %t: %v", runs, err)
		}
		if len(h.runtime.opened) != 1 {
			t.Errorf("runs %t: the runtime was asked to reopen %d logs", runs, len(h.runtime.opened))
		}
	}
}
