package volume

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestFilesThatCannotBeGivenToTheFSGroupKeepNoPodFromStarting(t *testing.T) {
	h := reallyMounting(t)
	disk := t.TempDir()
	must(t, os.WriteFile(filepath.Join(disk, "data"), nil, 0o600))
	must(t, kernel{}.Bind(disk, disk))
	t.Cleanup(func() { must(t, kernel{}.Unmount(disk)) })
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	pod := podOf(h.claimed("data", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}}))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](4242)}
	_, err := h.Mount(t.Context(), pod)
	must(t, err)
}

func TestFilesThatCannotBeFoundFailTheMount(t *testing.T) {
	reallyMounting(t)
	disk := t.TempDir()
	must(t, os.Mkdir(filepath.Join(disk, "dead"), 0o700))
	killFileSystem(t, filepath.Join(disk, "dead"))
	if err := own(disk, 4242, false); err == nil {
		t.Error("succeeded")
	}
}
