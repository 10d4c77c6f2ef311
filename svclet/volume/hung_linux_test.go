package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"svc.dev/svc/svclet/volumeexpansion"
)

// killFileSystem mounts a file system on dir whose server has ended: what enters it fails, and would
// wait for ever if the server only did not respond.
func killFileSystem(t *testing.T, dir string) {
	t.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("FUSE: %v", err)
	}
	must(t, unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)))
	must(t, unix.Close(server))
	t.Cleanup(func() { must(t, kernel{}.Unmount(dir)) })
	if _, err := os.Lstat(dir); err == nil {
		t.Fatal("the file system responds")
	}
}

func TestAMountThatDoesNotRespondIsFoundWithoutEnteringIt(t *testing.T) {
	reallyMounting(t)
	dir := t.TempDir()
	check := func(path string, want bool) {
		t.Helper()
		if got, err := (kernel{}).Mounted(path); got != want || err != nil {
			t.Errorf("mounted: %t, %v", got, err)
		}
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("nowhere", link))
	check(file, false)
	check(link, false)
	check(dir, false)
	must(t, kernel{}.Bind(dir, dir))
	t.Cleanup(func() { must(t, kernel{}.Unmount(dir)) })
	check(dir, true)
	must(t, kernel{}.Bind("/dev/null", file))
	t.Cleanup(func() { must(t, kernel{}.Unmount(file)) })
	check(file, true)
	if _, err := (kernel{}).Mounted(filepath.Join(dir, "nothing")); !os.IsNotExist(err) {
		t.Errorf("a path that does not exist: %v", err)
	}
	killFileSystem(t, dir)
	check(dir, true)
}

func TestALocalVolumeThatDoesNotRespondIsNeitherEnteredByRefreshesNorInTheWayOfThePodsEnd(t *testing.T) {
	h := reallyMounting(t)
	h.Manager.Expansion = volumeexpansion.New(volumeexpansion.Options{Events: record.NewFakeRecorder(10), Clock: h.clock})
	disk := t.TempDir()
	pod := podOf(h.claimed("data", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}}))
	h.objects.volumes["pv-data"].UID = "volume"
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	killFileSystem(t, disk)
	killFileSystem(t, mounted["data"].HostPath)
	must(t, h.Refresh(t.Context(), pod))
	// As after a restart of the agent.
	h.Manager.pods = map[types.UID]*state{}
	_, err = h.Mount(t.Context(), pod)
	must(t, err)
	must(t, h.Unmount(t.Context(), pod.UID))
}
