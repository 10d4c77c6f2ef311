package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// rootModes is a mounter whose file systems have roots with the kernel's default modes.
type rootModes struct{ recordingMounter }

func (r *rootModes) Mount(fstype, target, options string) error {
	mode := 0o777 | fs.ModeSticky
	if fstype == "hugetlbfs" {
		mode = 0o755
	}
	if err := os.Chmod(target, mode); err != nil {
		return err
	}
	return r.recordingMounter.Mount(fstype, target, options)
}

func TestAnEmptyDirHasTheModeOfItsSpecOnEachMedium(t *testing.T) {
	group := ptr.To(int64(os.Getgid()))
	for _, c := range []struct {
		name   string
		medium corev1.StorageMedium
		mode   *int32
		group  *int64
		want   string
	}{
		{"no mode", "", nil, nil, "drwxrwxrwx"},
		{"no mode in memory", "Memory", nil, nil, "dtrwxrwxrwx"}, // tmpfs's own
		{"no mode in huge pages", "HugePages", nil, nil, "drwxrwxrwx"},
		{"mode", "", ptr.To[int32](0o750), nil, "drwxr-x---"},
		{"no permissions", "", ptr.To[int32](0), nil, "d---------"},
		{"sticky", "", ptr.To[int32](0o1777), nil, "dtrwxrwxrwx"},
		{"mode in memory", "Memory", ptr.To[int32](0o777), nil, "drwxrwxrwx"},
		{"sticky in memory", "Memory", ptr.To[int32](0o1770), nil, "dtrwxrwx---"},
		{"mode in huge pages", "HugePages", ptr.To[int32](0o700), nil, "drwx------"},
		{"sticky in huge pages", "HugePages-2Mi", ptr.To[int32](0o1755), nil, "dtrwxr-xr-x"},
		{"fsGroup adds the permissions of the group", "", ptr.To[int32](0o1700), group, "dgtrwxrwx---"},
		{"fsGroup in memory", "Memory", ptr.To[int32](0o700), group, "dgrwxrwx---"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFixture(t)
			h.Mounter = &rootModes{}
			pod := podOf(volumeOf("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: c.medium, Mode: c.mode}}))
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: c.group}
			mounted, err := h.Mount(t.Context(), pod)
			must(t, err)
			dir := mounted["scratch"].HostPath
			info, err := os.Stat(dir)
			must(t, err)
			if got := info.Mode().String(); got != c.want {
				t.Errorf("mode %s, want %s", got, c.want)
			}
			if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm()&0o111 == 0 || info.Mode()&fs.ModeSticky != 0 {
				t.Errorf("the directory above has the mode, too: %v, %v", info.Mode(), err)
			}
			must(t, os.Chmod(dir, 0o711))
			_, err = h.Mount(t.Context(), pod)
			must(t, err)
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o711 {
				t.Errorf("the mode that the pod gave it is lost: %v, %v", info.Mode(), err)
			}
		})
	}
}
