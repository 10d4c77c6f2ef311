package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestUsageEqualsDu(t *testing.T) {
	h := newFixture(t)
	h.UsagePeriod = time.Minute
	pod := podOf(
		volumeOf("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volumeOf("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
	)
	if usage, err := h.Usage(t.Context(), pod.UID); err != nil || len(usage) > 0 {
		t.Errorf("of a pod that is not mounted: %v, %v", usage, err)
	}
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	in := func(name string) string { return filepath.Join(mounted["v"].HostPath, name) }
	measured := func() Usage {
		t.Helper()
		usage, err := h.Usage(t.Context(), pod.UID)
		must(t, err)
		if len(usage) != 1 || usage[0].Name != "v" {
			t.Fatalf("measured: %+v", usage)
		}
		return usage[0]
	}
	empty := measured()
	if empty.InodesUsed != 1 || empty.Capacity == 0 || empty.Available > empty.Capacity {
		t.Errorf("empty: %+v", empty)
	}
	must(t, os.Mkdir(in("dir"), 0o755))
	must(t, os.WriteFile(in("dir/file"), make([]byte, 1<<20), 0o600))
	must(t, os.Link(in("dir/file"), in("link")))
	must(t, os.Symlink("/", in("symlink")))
	if again := measured(); again != empty {
		t.Errorf("measured again within the period: %+v", again)
	}
	h.clock.SetTime(h.clock.Now().Add(time.Minute))
	full := measured()
	if full.InodesUsed != 4 || full.Used < 1<<20 || full.Used > 3<<19 {
		t.Errorf("full: %+v", full)
	}
}

// fakeQuotas give each directory a quota, and say that it uses 7 bytes and 3 inodes.
type fakeQuotas struct {
	assigned []string
	err      error
}

func (f *fakeQuotas) Assign(dir string) error {
	f.assigned = append(f.assigned, dir)
	return f.err
}

func (f *fakeQuotas) Usage(dir string) (bytes, inodes uint64, ok bool, err error) {
	return 7, 3, f.err == nil && slices.Contains(f.assigned, dir), nil
}

func TestVolumesAreMeasuredByTheirQuotas(t *testing.T) {
	for _, refused := range []error{nil, errors.New("no quotas here")} {
		h, quotas := newFixture(t), &fakeQuotas{err: refused}
		h.Quotas = quotas
		pod := podOf(
			volumeOf("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			volumeOf("config", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}),
		)
		var mounted map[string]Mounted
		for range 2 { // the second time the pod may have files in it
			var err error
			mounted, err = h.Mount(t.Context(), pod)
			must(t, err)
		}
		if want := []string{mounted["v"].HostPath}; !slices.Equal(quotas.assigned, want) {
			t.Errorf("quotas were given to %v, want %v once", quotas.assigned, want)
		}
		usage, err := h.Usage(t.Context(), pod.UID)
		must(t, err)
		i := slices.IndexFunc(usage, func(u Usage) bool { return u.Name == "v" })
		if i < 0 {
			t.Fatalf("measured: %+v", usage)
		}
		byQuota := usage[i].Used == 7 && usage[i].InodesUsed == 3
		if byQuota != (refused == nil) || usage[i].Capacity == 0 || refused != nil && usage[i].InodesUsed != 1 {
			t.Errorf("with the refusal %v: %+v", refused, usage[i])
		}
	}
}

func TestAFileSystemThatDoesNotRespondBlocksNoOtherMeasurement(t *testing.T) {
	g, h := gomega.NewWithT(t), newFixture(t)
	pod := podOf(
		volumeOf("hangs", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volumeOf("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
	)
	_, err := h.Mount(t.Context(), pod)
	must(t, err)
	hanging, respond := make(chan struct{}, 2), make(chan struct{})
	h.measureFiles = func(ctx context.Context, v mountedVolume) (Usage, error) {
		if v.name == "hangs" {
			hanging <- struct{}{}
			<-respond
		}
		return measureVolume(ctx, v)
	}
	names := func(ctx context.Context) ([]string, error) {
		usage, err := h.Usage(ctx, pod.UID)
		names := []string{}
		for _, u := range usage {
			names = append(names, u.Name)
		}
		return names, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, err := names(ctx); ended <- err }()
	<-hanging
	cancel()
	g.Expect(<-ended).To(gomega.MatchError(gomega.ContainSubstring(`measuring volume "hangs": its file system`)))

	// It is not waited for again, measured twice or, after it has been mounted again, forgotten.
	for range 2 {
		g.Eventually(func() []string {
			got, err := names(t.Context())
			g.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("hangs")))
			return got
		}).Should(gomega.Equal([]string{"v"}))
		_, err := h.Mount(t.Context(), pod)
		must(t, err)
	}
	g.Expect(hanging).To(gomega.BeEmpty())
	close(respond)
	g.Eventually(func() ([]string, error) { return names(t.Context()) }).Should(gomega.Equal([]string{"hangs", "v"}))
}

func TestOnRootMismatchChangesOwnershipOnlyIfTheRootDiffers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing groups needs root")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if owned(dir, 4242, false) {
		t.Error("owned before")
	}
	must(t, own(dir, 4242, false))
	if !owned(dir, 4242, false) || owned(dir, 4243, false) {
		t.Error("not owned after")
	}
	must(t, os.Chmod(dir, 0o700))
	if owned(dir, 4242, false) {
		t.Error("owned without its mode")
	}
}

func TestTerminationLogsAreWritableByEveryUser(t *testing.T) {
	h := newFixture(t)
	seen := map[string]bool{}
	for range 3 {
		path, err := h.TerminationLog("u1", "main")
		must(t, err)
		info, err := os.Stat(path)
		must(t, err)
		if dir := filepath.Dir(path); info.Mode() != 0o666 || dir != filepath.Join(h.RootDir, "pods/u1/containers/main") || seen[path] {
			t.Errorf("%s: %s", path, fmt.Sprint(info.Mode()))
		}
		seen[path] = true
	}
}
