package volume

import (
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func TestTheDirectoryOfAVolumeHasItsMountOptions(t *testing.T) {
	h := reallyMounting(t)
	dir := t.TempDir()
	mounted, err := h.Mount(t.Context(), h.mountOptionsClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}, "ro,noexec"))
	must(t, err)
	for path, want := range map[string]bool{dir: false, mounted["data"].HostPath: true} {
		var stat unix.Statfs_t
		must(t, unix.Statfs(path, &stat))
		if got := stat.Flags&(unix.ST_NOEXEC|unix.ST_RDONLY) == unix.ST_NOEXEC|unix.ST_RDONLY; got != want {
			t.Errorf("%s: flags %x", path, stat.Flags)
		}
	}
}
