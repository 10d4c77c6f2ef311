package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// inNamespace is set in tests that run in a mount namespace of their own.
const inNamespace = "SVCLET_TEST_MOUNTS"

// TestMain runs root's tests in a mount namespace of their own, which removes
// their mounts with them.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), inNamespace+"=yes")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err := self.Run()
	var failed *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &failed):
		os.Exit(failed.ExitCode())
	default:
		os.Exit(m.Run())
	}
}

// reallyMounting returns a fixture that mounts with the kernel.
func reallyMounting(t *testing.T) *fixture {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("mounting needs root and a mount namespace")
	}
	h := newFixture(t)
	h.Manager.Mounter = kernel{}
	t.Cleanup(func() {
		mounts, err := kernel{}.Under(h.RootDir)
		must(t, err)
		for _, m := range slices.Backward(mounts) {
			must(t, kernel{}.Unmount(m.Path))
		}
	})
	return h
}

func TestMemoryIsMountedOnceWithItsSize(t *testing.T) {
	h := reallyMounting(t)
	pod := podOf(volumeOf("ram", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("1Mi")),
	}}), volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}}))
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	dir := mounted["ram"].HostPath
	must(t, os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600))
	must(t, os.Chmod(dir, 0o700))
	// As after a restart of the agent.
	h.Manager.pods = map[types.UID]*state{}
	_, err = h.Mount(t.Context(), pod)
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
		t.Error("mounted a second time")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the mode that the pod gave it is lost: %v, %v", info.Mode(), err)
	}
	mounts, err := kernel{}.Under(h.RootDir)
	must(t, err)
	if len(mounts) != 2 || mounts[0].Type != "tmpfs" || !strings.Contains(mounts[0].Options, "size=1024k") {
		t.Errorf("mounts: %+v", mounts)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB in 1 MiB: %v", err)
	}
	usage, err := h.Usage(t.Context(), pod.UID)
	if err != nil || len(usage) != 2 || usage[0].Capacity != 1<<20 || usage[0].Used < 4096 {
		t.Errorf("usage: %+v, %v", usage, err)
	}
	must(t, h.Unmount(t.Context(), pod.UID))
	if _, err := os.Stat(h.PodDir(pod.UID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// subPathPod returns a pod with a container that mounts a subPath of a volume.
func subPathPod(source corev1.VolumeSource, sub string) *corev1.Pod {
	pod := podOf(volumeOf("v", source))
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "v", MountPath: "/other"}, {Name: "v", MountPath: "/in", SubPath: sub},
	}
	return pod
}

func TestSubPathsStayInsideTheVolume(t *testing.T) {
	h := reallyMounting(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	pod := subPathPod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, "")
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	volume := mounted["v"]
	in := func(path string) string { return filepath.Join(volume.HostPath, path) }
	must(t, os.Mkdir(in("dir"), 0o755))
	must(t, os.WriteFile(in("dir/file"), []byte("hello"), 0o644))
	must(t, os.Symlink("dir/file", in("inner")))
	must(t, os.Symlink(outside, in("absolute")))
	must(t, os.Symlink("../../../../../../../../../../../../../etc", in("climbing")))
	must(t, os.Symlink("/proc/self/root/etc", in("magic")))
	must(t, os.Symlink("missing", in("dangling")))
	must(t, unix.Mkfifo(in("fifo"), 0o600))
	for _, test := range []struct{ path, want string }{
		{"dir", ""}, {"dir/file", ""}, {"inner", ""}, {"new/deep/er", ""}, {"fifo", ""}, {".", ""},
		{"absolute", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"absolute/secret", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"climbing", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"climbing/new", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"magic", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"dangling", `failed to create subPath directory for volumeMount "v" of container "main"`},
		{"dir/file/x", `failed to prepare subPath for volumeMount "v" of container "main"`},
		{"/etc", "error SubPath `/etc` must not be an absolute path"},
		{"dir/../../x", "unable to provision SubPath `dir/../../x`: must not contain '..'"},
	} {
		got, err := h.SubPath(t.Context(), pod, &pod.Spec.Containers[0], 1, volume, test.path)
		if test.want != "" {
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: %v, want %s", test.path, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		if want := filepath.Join(h.PodDir(pod.UID), "volume-subpaths/v/main/1"); got != want {
			t.Errorf("%s: mounted on %s", test.path, got)
		}
		source, err := os.Stat(in(test.path))
		must(t, err)
		target, err := os.Stat(got)
		must(t, err)
		if !os.SameFile(source, target) {
			t.Errorf("%s: something else is mounted", test.path)
		}
	}
	for _, made := range []string{"new", "new/deep", "new/deep/er"} {
		if info, err := os.Stat(in(made)); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("%s: %v, %v", made, info, err)
		}
	}
	must(t, h.Unmount(t.Context(), pod.UID))
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Error("what lies outside has been removed")
	}
}

// A container renames a directory and a symlink to the outside over one another
// all the time, while the agent mounts paths through it.
func TestNoRaceMakesASubPathLeaveTheVolume(t *testing.T) {
	h := reallyMounting(t)
	outside := t.TempDir()
	must(t, os.Mkdir(filepath.Join(outside, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "sub", "secret"), nil, 0o600))
	pod := subPathPod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, "")
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	volume := mounted["v"].HostPath
	must(t, os.MkdirAll(filepath.Join(volume, "a", "sub"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(volume, "b")))

	ctx, cancel := context.WithCancel(t.Context())
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for ctx.Err() == nil {
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "a"), unix.AT_FDCWD, filepath.Join(volume, "b"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	inside, refused := 0, 0
	for i := range 2000 {
		path := []string{"a", "a/sub", fmt.Sprintf("a/new-%d", i), "b/sub"}[i%4]
		got, err := h.SubPath(t.Context(), pod, &pod.Spec.Containers[0], 1, mounted["v"], path)
		if err != nil {
			refused++
			continue
		}
		inside++
		for _, secret := range []string{"secret", "sub/secret"} {
			if _, err := os.Lstat(filepath.Join(got, secret)); err == nil {
				t.Fatalf("%s leads outside", path)
			}
		}
	}
	cancel()
	attacker.Wait()
	if inside == 0 || refused == 0 {
		t.Errorf("the race was not run: %d inside, %d refused", inside, refused)
	}
	entries, err := os.ReadDir(outside)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("directories have been made outside: %v", entries)
	}
	must(t, h.Unmount(t.Context(), pod.UID))
	if _, err := os.Lstat(filepath.Join(outside, "sub", "secret")); err != nil {
		t.Error("what lies outside has been removed")
	}
}

func TestSubPathsFollowUpdatesOfTheirVolume(t *testing.T) {
	h := reallyMounting(t)
	pod := subPathPod(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}, "colour")
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	read := func() string {
		path, err := h.SubPath(t.Context(), pod, &pod.Spec.Containers[0], 1, mounted["v"], "colour")
		must(t, err)
		data, err := os.ReadFile(path)
		must(t, err)
		return string(data)
	}
	if got := read(); got != "blue" {
		t.Errorf("at first %q", got)
	}
	h.objects.configMaps["settings"] = &corev1.ConfigMap{Data: map[string]string{"colour": "red"}}
	must(t, h.Refresh(t.Context(), pod))
	if got := read(); got != "red" {
		t.Errorf("after an update %q", got)
	}
	must(t, h.Unmount(t.Context(), pod.UID))
}

// They keep the file system in use: drivers could not release its device.
func TestSubPathsAreUnmountedBeforeTheDriverReleasesTheVolume(t *testing.T) {
	h := reallyMounting(t)
	driver := &recordingCSI{dir: t.TempDir()}
	h.Manager.CSI = driver
	must(t, os.MkdirAll(filepath.Join(driver.dir, "published/v/part"), 0o755))
	pod := subPathPod(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "hut.example"}}, "part")
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	_, err = h.SubPath(t.Context(), pod, &pod.Spec.Containers[0], 1, mounted["v"], "part")
	must(t, err)
	count := func() int {
		mounts, err := kernel{}.Under(h.PodDir(pod.UID))
		must(t, err)
		return len(mounts)
	}
	if count() != 1 {
		t.Fatalf("%d mounts", count())
	}
	left := -1
	driver.unpublish = func() { left = count() }
	must(t, h.Unmount(t.Context(), pod.UID))
	if left != 0 {
		t.Errorf("%d mounts are left when the driver is called", left)
	}
}

func TestUnmountNeverLeavesThePodsDirectory(t *testing.T) {
	h := reallyMounting(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600))
	pod := podOf(volumeOf("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	volume := mounted["v"].HostPath
	must(t, os.Symlink(outside, filepath.Join(volume, "link")))
	for _, name := range []string{"one", "two"} {
		must(t, os.Mkdir(filepath.Join(volume, name), 0o755))
		must(t, kernel{}.Bind(outside, filepath.Join(volume, name)))
	}
	must(t, kernel{}.Bind(outside, filepath.Join(volume, "one"))) // stacked
	// While mounts remain, nothing is removed through them.
	if err := RemoveTree(t.Context(), h.PodDir(pod.UID)); !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) {
		t.Errorf("removing what is mounted: %v", err)
	}
	must(t, h.Unmount(t.Context(), pod.UID))
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error("what lies outside has been removed")
	}
	if uids, err := h.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %v, %v", uids, err)
	}
}

func TestDeeplyNestedDirectoriesAreRemoved(t *testing.T) {
	h := newFixture(t)
	pod := podOf(volumeOf("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	at, err := unix.Open(mounted["v"].HostPath, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	if _, err := h.Usage(t.Context(), pod.UID); err == nil {
		t.Error("measured however deep")
	}
	// The mount table is a fake; the removal is real.
	must(t, h.Unmount(t.Context(), pod.UID))
	if uids, err := h.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %v, %v", uids, err)
	}
}

func TestVolumesGetThePodsFSGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing groups needs root")
	}
	h := newFixture(t)
	pod := podOf(
		volumeOf("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login", DefaultMode: ptr.To[int32](0o400)}}),
		volumeOf("token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}}),
	)
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](4242), RunAsUser: ptr.To[int64](77)}
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	for path, want := range map[string]string{
		mounted["scratch"].HostPath:          "dgrwxrwxrwx 0 4242",
		mounted["cred"].HostPath:             "dgrwxrwxrwx 0 4242",
		mounted["cred"].HostPath + "/name":   "-r--r----- 0 4242",
		mounted["cred"].HostPath + "/..data": "dgrwxr-xr-x 0 4242",
		mounted["token"].HostPath + "/token": "-rw-r----- 77 4242",
	} {
		info, err := os.Stat(path)
		must(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%v %d %d", info.Mode(), stat.Uid, stat.Gid); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestClaimsBoundToLocalVolumesAreMounted(t *testing.T) {
	h := reallyMounting(t)
	disk := t.TempDir()
	must(t, os.WriteFile(filepath.Join(disk, "data"), nil, 0o600))
	claim := func(name string, source corev1.PersistentVolumeSource) {
		h.objects.claims[name] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		h.objects.volumes["pv-"+name] = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, Annotations: map[string]string{groupAnnotation: "99"}},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source, ClaimRef: &corev1.ObjectReference{UID: "claim"}},
		}
	}
	claim("local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}})
	claim("host", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk}})
	claim("rbd", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}})
	claim("unbound", corev1.PersistentVolumeSource{})
	h.objects.claims["unbound"].Status.Phase = corev1.ClaimPending
	of := func(name string) corev1.Volume {
		return volumeOf(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	pod := podOf(of("local"), of("host"))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](4242)}
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	if m := mounted["host"]; m.HostPath != disk || *m.Group != 99 {
		t.Errorf("host: %+v", m)
	}
	info, err := os.Stat(filepath.Join(mounted["local"].HostPath, "data"))
	if err != nil || info.Sys().(*syscall.Stat_t).Gid != 4242 {
		t.Errorf("local: %v, %v", info, err)
	}
	second := podOf(of("local"))
	second.UID = "u2"
	second.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](1111)}
	_, err = h.Mount(t.Context(), second)
	must(t, err)
	if info, err = os.Stat(filepath.Join(disk, "data")); err != nil || info.Sys().(*syscall.Stat_t).Gid != 4242 {
		t.Errorf("the second pod has taken the volume: %v, %v", info, err)
	}
	usage, err := h.Usage(t.Context(), second.UID)
	if err != nil || len(usage) != 1 || usage[0].Name != "local" || usage[0].Claim != "local" || usage[0].Capacity == 0 {
		t.Errorf("usage: %+v, %v", usage, err)
	}
	for name, want := range map[string]string{
		"rbd":     "no volume plugin matched: PersistentVolume pv-rbd is of type rbd, which svclet does not mount: use a volume of type csi of the driver rbd.csi.ceph.com",
		"unbound": "error processing PVC garden/unbound: PVC is not bound",
		"nothing": `error processing PVC garden/nothing: failed to fetch PVC from API server: persistentvolumeclaims "nothing" not found`,
	} {
		third := podOf(of(name))
		third.UID = "u3"
		if _, err := h.Mount(t.Context(), third); err == nil || err.Error() != fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", name, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, h.Unmount(t.Context(), "u1"))
	must(t, h.Unmount(t.Context(), "u2"))
	if _, err := os.Stat(filepath.Join(disk, "data")); err != nil {
		t.Error("the data of the volume has been removed")
	}
}

func TestSharedMountsAreMadeOnce(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		t.Skip("mounting needs root and a mount namespace")
	}
	dir := t.TempDir()
	must(t, ShareMounts(dir))
	must(t, ShareMounts(dir))
	must(t, ShareMounts(filepath.Join(dir, ".")))
	mounts, err := kernel{}.Under(dir)
	must(t, err)
	if len(mounts) != 1 {
		t.Errorf("mounts: %+v", mounts)
	}
	must(t, kernel{}.Unmount(dir))
}
