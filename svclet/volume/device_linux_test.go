package volume

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/svclet/volumeexpansion"
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
	h.Manager.ResizeFilesystem = func(string, string) error { t.Error("resized"); return nil }
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
	h.objects.volumes["pv"].Annotations = map[string]string{corev1.MountOptionAnnotation: "nodiratime"}
	reader := pod("u1")
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	mounted, err := h.Mount(t.Context(), reader)
	must(t, err)
	if want := []string{"xfs ro,nodiratime"}; !slices.Equal(*calls, want) || !mounted["disk"].ReadOnly {
		t.Errorf("calls %q, want %q; mounted %+v", *calls, want, mounted["disk"])
	}
}

func TestTheDeviceOfAnotherNodeIsNeitherFormattedNorMapped(t *testing.T) {
	for mode, want := range map[corev1.PersistentVolumeMode]string{
		corev1.PersistentVolumeFilesystem: `MountVolume.NodeAffinity check failed for volume "disk" : no matching NodeSelectorTerms`,
		corev1.PersistentVolumeBlock:      `MapVolume.NodeAffinity check failed for volume "disk" : no matching NodeSelectorTerms`,
	} {
		h := newFixture(t)
		h.onNode(t, "b")
		pod, calls := deviceClaim(t, h)
		h.objects.volumes["pv"].Spec.VolumeMode, h.objects.volumes["pv"].Spec.NodeAffinity = &mode, affinityFor("a")
		mounted, err := h.Mount(t.Context(), pod("u1"))
		if err == nil || err.Error() != want || len(mounted)+len(*calls)+len(h.mounter.mounts) > 0 {
			t.Errorf("%v, mounted %v, calls %q", err, mounted, *calls)
		}
	}
}

func TestADeviceForOnePodIsMappedForAnotherOneWhenTheFirstHasReleasedIt(t *testing.T) {
	h := newFixture(t)
	deviceClaim(t, h)
	pod := podOf(h.claimed("data", h.objects.volumes["pv"].Spec.PersistentVolumeSource))
	h.objects.volumes["pv-data"].Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	pod.Spec.Containers = []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}}}
	h.checkSole(t, pod)
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

// TestTheFileSystemOfABlockDeviceGrowsWithItsVolume while pods use it: once, and the claim has its
// size then.
func TestTheFileSystemOfABlockDeviceGrowsWithItsVolume(t *testing.T) {
	h := newFixture(t)
	pod, _ := deviceClaim(t, h)
	claim, pv := h.objects.claims["disk"], h.objects.volumes["pv"]
	claim.Namespace, pv.UID = "ns", "volume"
	claim.Status.Capacity, pv.Spec.Capacity = storage("1Gi"), storage("1Gi")
	server := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(claim).Build()
	must(t, server.Create(t.Context(), claim))
	h.Manager.Expansion = volumeexpansion.New(volumeexpansion.Options{Client: server, Events: record.NewFakeRecorder(10), Clock: h.clock})
	for _, uid := range []types.UID{"u1", "u2"} {
		_, err := h.Mount(t.Context(), pod(uid))
		must(t, err)
	}

	pv.Spec.Capacity = storage("2Gi")
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	must(t, server.Status().Update(t.Context(), claim))
	var resized []string
	h.Manager.ResizeFilesystem = func(device, dir string) error {
		resized = append(resized, strings.TrimPrefix(dir, h.RootDir+"/"))
		if len(resized) == 1 {
			return errors.New("resize2fs: not found")
		}
		return nil
	}
	if err := h.Refresh(t.Context(), pod("u1")); err == nil || !strings.Contains(err.Error(), `MountVolume.NodeExpandVolume failed for volume "pv": resize2fs: not found`) {
		t.Errorf("error %v", err)
	}
	must(t, server.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	for _, uid := range []types.UID{"u1", "u2"} {
		must(t, h.Refresh(t.Context(), pod(uid)))
	}
	const dir = "plugins/kubernetes.io/local-volume/mounts/pv"
	if want := []string{dir, dir}; !slices.Equal(resized, want) {
		t.Errorf("resized %q, want %q", resized, want)
	}
	must(t, server.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	if got := claim.Status.Capacity.Storage().String(); got != "2Gi" || len(claim.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("the claim has %s, %v", got, claim.Status.AllocatedResourceStatuses)
	}

	changed := make(chan []types.UID)
	go h.Run(t.Context(), func(uids []types.UID) { changed <- uids })
	for !h.clock.HasWaiters() {
		runtime.Gosched()
	}
	h.clock.Step(refreshPeriod)
	if got, want := <-changed, []types.UID{"u1", "u2"}; !slices.Equal(got, want) {
		t.Errorf("refreshed periodically: %q, want %q", got, want)
	}
}

// TestWhatHasNoFileSystemOfItsOwnNeedsNoExpansion: a directory, and a device for containers.
func TestWhatHasNoFileSystemOfItsOwnNeedsNoExpansion(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeSpec, *corev1.Pod){
		"directory": func(s *corev1.PersistentVolumeSpec, _ *corev1.Pod) {
			s.Local.Path, s.MountOptions = t.TempDir(), nil
		},
		"device": func(s *corev1.PersistentVolumeSpec, pod *corev1.Pod) {
			s.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
			pod.Spec.Containers = []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/x"}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t)
			pod, _ := deviceClaim(t, h)
			claim, pv, user := h.objects.claims["disk"], h.objects.volumes["pv"], pod("u1")
			claim.Namespace, pv.UID = "ns", "volume"
			claim.Status.Capacity, pv.Spec.Capacity = storage("1Gi"), storage("2Gi")
			change(&pv.Spec, user)
			server := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(claim).Build()
			must(t, server.Create(t.Context(), claim))
			h.Manager.Expansion = volumeexpansion.New(volumeexpansion.Options{Client: server, Events: record.NewFakeRecorder(10), Clock: h.clock})
			_, err := h.Mount(t.Context(), user)
			must(t, err)
			must(t, server.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
			if got := claim.Status.Capacity.Storage().String(); got != "2Gi" {
				t.Errorf("the claim has %s", got)
			}
			must(t, h.Unmount(t.Context(), "u1"))
		})
	}
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}
