package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// deviceClaim adds a claim that is bound to a volume of type local, which is a block device, and
// returns a function that makes pods with it. mounted are the calls of FormatAndMount.
func deviceClaim(t *testing.T, h *fixture) (pod func(types.UID) *corev1.Pod, mounted *[]string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making devices needs root")
	}
	device := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Skipf("making devices: %v", err)
	}
	h.objects.claims["disk"] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	h.objects.volumes["pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}},
		ClaimRef:               &corev1.ObjectReference{UID: "claim"}, MountOptions: []string{"noatime"},
	}}
	mounted = &[]string{}
	h.Manager.FormatAndMount = func(source, dir, fstype string, options []string) error {
		*mounted = append(*mounted, fstype+" "+strings.Join(options, ","))
		if source != device || dir != filepath.Join(h.RootDir, "plugins/kubernetes.io/local-volume/mounts/pv") {
			t.Errorf("%s is mounted on %s", source, dir)
		}
		return h.mounter.Mount(fstype, dir, "")
	}
	return func(uid types.UID) *corev1.Pod {
		pod := podOf(volumeOf("disk", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}))
		pod.UID = uid
		return pod
	}, mounted
}

// paths returns what is mounted, below the root directory.
func (h *fixture) paths() (paths []string) {
	for _, m := range h.mounter.mounts {
		paths = append(paths, strings.TrimPrefix(m.Path, h.RootDir+"/"))
	}
	return paths
}

// TestABlockDeviceIsMountedOnceForAllPods, and stays while one of them uses it.
func TestABlockDeviceIsMountedOnceForAllPods(t *testing.T) {
	h := newFixture(t)
	pod, calls := deviceClaim(t, h)
	const device = "plugins/kubernetes.io/local-volume/mounts/pv"
	volume := func(uid string) string { return "pods/" + uid + "/volumes/kubernetes.io~local-volume/pv" }
	for _, uid := range []types.UID{"u1", "u2", "u1"} {
		mounted, err := h.Mount(t.Context(), pod(uid))
		must(t, err)
		if m := mounted["disk"]; m.HostPath != filepath.Join(h.RootDir, volume(string(uid))) || m.Device != "" {
			t.Errorf("mounted %+v", m)
		}
	}
	if want := []string{"ext4 noatime"}; !slices.Equal(*calls, want) {
		t.Errorf("calls %q, want %q", *calls, want)
	}
	must(t, h.Unmount(t.Context(), "u1"))
	if got, want := h.paths(), []string{device, volume("u2")}; !slices.Equal(got, want) {
		t.Errorf("mounted %q, want %q", got, want)
	}
	must(t, h.Unmount(t.Context(), "u2"))
	if got := h.paths(); len(got) > 0 {
		t.Errorf("still mounted: %q", got)
	}
	if _, err := os.Stat(filepath.Join(h.RootDir, device)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the device: %v", err)
	}
}

func TestABlockDeviceHasTheFileSystemOfItsVolume(t *testing.T) {
	h := newFixture(t)
	pod, calls := deviceClaim(t, h)
	h.objects.volumes["pv"].Spec.Local.FSType = ptr.To("xfs")
	reader := pod("u1")
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	mounted, err := h.Mount(t.Context(), reader)
	must(t, err)
	if want := []string{"xfs ro,noatime"}; !slices.Equal(*calls, want) || !mounted["disk"].ReadOnly {
		t.Errorf("calls %q, want %q; mounted %+v", *calls, want, mounted["disk"])
	}
}

// TestADeviceThatCannotBeMountedIsReleased: the pod is deleted before it has started.
func TestADeviceThatCannotBeMountedIsReleased(t *testing.T) {
	h := newFixture(t)
	pod, _ := deviceClaim(t, h)
	h.Manager.FormatAndMount = func(_, _, _ string, _ []string) error { return errors.New("mkfs.ext4: not found") }
	_, err := h.Mount(t.Context(), pod("u1"))
	if err == nil || !strings.Contains(err.Error(), "(fstype: ext4), error mkfs.ext4: not found") {
		t.Errorf("error %v", err)
	}
	must(t, h.Unmount(t.Context(), "u1"))
	if _, err := os.Stat(filepath.Join(h.RootDir, "plugins/kubernetes.io/local-volume/mounts/pv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the device: %v", err)
	}
}
