package volume

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// objects are fake API objects.
type objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	token      string
	bundles    []*certificatesv1.ClusterTrustBundle
	// key and chain are those of the certificate; without, it is not issued yet.
	key, chain string
}

func get[T any](from map[string]*T, kind, name string) (*T, error) {
	if object, ok := from[name]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

func (o *objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return get(o.configMaps, "configmap", name)
}

func (o *objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return get(o.secrets, "secret", name)
}

func (o *objects) PersistentVolumeClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(o.claims, "persistentvolumeclaims", name)
}

func (o *objects) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(o.volumes, "persistentvolumes", name)
}

func (o *objects) Token(context.Context, *corev1.Pod, *corev1.ServiceAccountTokenProjection) (string, error) {
	return o.token, nil
}

func (o *objects) TrustBundles(context.Context, *corev1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	return o.bundles, nil
}

func (o *objects) PodCertificate(context.Context, *corev1.Pod, string, int, *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	if o.key == "" {
		return nil, nil, errors.New("credential bundle is not issued yet")
	}
	return []byte(o.key), []byte(o.chain), nil
}

// recordingMounter records mounts instead of making them.
type recordingMounter struct {
	mutex  sync.Mutex
	mounts []Mount
}

func (p *recordingMounter) Mounted(path string) (bool, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, err := os.Lstat(path); err != nil {
		return false, err
	}
	return slices.ContainsFunc(p.mounts, func(m Mount) bool { return m.Path == path }), nil
}

func (p *recordingMounter) Mount(fstype, target, options string) error {
	return p.add(Mount{Path: target, Type: fstype, Options: options})
}

func (p *recordingMounter) Bind(source, target string) error {
	return p.add(Mount{Path: target, Root: source})
}

func (p *recordingMounter) add(m Mount) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.mounts = append(p.mounts, m)
	return nil
}

func (p *recordingMounter) Unmount(path string) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, m := range slices.Backward(p.mounts) {
		if m.Path == path {
			p.mounts = slices.Delete(p.mounts, i, i+1)
			return nil
		}
	}
	return nil
}

func (p *recordingMounter) Under(dir string) ([]Mount, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var under []Mount
	for _, m := range p.mounts {
		if m.Path == dir || strings.HasPrefix(m.Path, dir+"/") {
			under = append(under, m)
		}
	}
	return under, nil
}

// fixture is a manager in a temporary directory with its fakes.
type fixture struct {
	*Manager
	objects *objects
	mounter *recordingMounter
	clock   *clocktesting.FakeClock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{
		objects: &objects{
			configMaps: map[string]*corev1.ConfigMap{"settings": {
				Data: map[string]string{"colour": "blue", "size": "9"}, BinaryData: map[string][]byte{"blob": {0, 1}},
			}},
			secrets: map[string]*corev1.Secret{"login": {Data: map[string][]byte{"name": []byte("me"), "password": []byte("sesame")}}},
			claims:  map[string]*corev1.PersistentVolumeClaim{},
			volumes: map[string]*corev1.PersistentVolume{},
			token:   "header.payload.signature",
		},
		mounter: &recordingMounter{},
		clock:   clocktesting.NewFakeClock(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)),
	}
	manager, err := New(Options{
		RootDir: t.TempDir(), Objects: h.objects, Mounter: h.mounter, Clock: h.clock,
		Allocatable: func() corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("2")}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Manager = manager
	return h
}

// podOf returns a pod with a container that mounts these volumes.
func podOf(volumes ...corev1.Volume) *corev1.Pod {
	main := corev1.Container{Name: "main"}
	for _, v := range volumes {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "rose", UID: "u1", Labels: map[string]string{"b": "2", "a": "1"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{main}, Volumes: volumes},
	}
}

func volumeOf(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

// tree returns the visible files of a volume by path, with their modes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	shown := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			shown[filepath.Join(e.Name(), strings.TrimPrefix(path, target))] = info.Mode().String() + " " + string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return shown
}

func TestVolumesAreInKubeletsLayout(t *testing.T) {
	h := newFixture(t)
	pod := podOf(
		volumeOf("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volumeOf("ram", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		volumeOf("conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}),
		volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}}),
		volumeOf("self", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}),
		volumeOf("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}),
		volumeOf("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}),
	)
	mounted, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"scratch": "kubernetes.io~empty-dir/scratch", "ram": "kubernetes.io~empty-dir/ram",
		"conf": "kubernetes.io~configmap/conf", "cred": "kubernetes.io~secret/cred",
		"self": "kubernetes.io~downward-api/self", "all": "kubernetes.io~projected/all",
	}
	for name, path := range want {
		if got := mounted[name].HostPath; got != filepath.Join(h.RootDir, "pods/u1/volumes", path) {
			t.Errorf("%s lies at %s", name, got)
		}
	}
	if mounted["host"] != (Mounted{HostPath: "/etc"}) {
		t.Errorf("host: %+v", mounted["host"])
	}
	if m := mounted["scratch"]; m.ReadOnly || !m.Relabel {
		t.Errorf("scratch: %+v", m)
	}
	if m := mounted["cred"]; !m.ReadOnly || !m.Relabel {
		t.Errorf("cred: %+v", m)
	}
	var memory []string
	for _, m := range h.mounter.mounts {
		memory = append(memory, filepath.Base(m.Path)+" "+m.Type+" "+m.Options)
	}
	wanted := []string{"ram tmpfs size=1073741824,noswap", "cred tmpfs size=1073741824,noswap", "all tmpfs size=1073741824,noswap"}
	if !slices.Equal(memory, wanted) {
		t.Errorf("in memory: %q, want %q", memory, wanted)
	}
	if err := h.Unmount(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	if uids, err := h.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left over: %v, %v", uids, err)
	}
	if len(h.mounter.mounts) > 0 || len(h.pods) > 0 {
		t.Errorf("left over: %v, %v", h.mounter.mounts, h.pods)
	}
}

func TestItemsSelectKeysAndPaths(t *testing.T) {
	h := newFixture(t)
	pod := podOf(
		volumeOf("conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: ptr.To[int32](0o640),
		}}),
		volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "login", DefaultMode: ptr.To[int32](0o400),
			Items: []corev1.KeyToPath{{Key: "name", Path: "a/b/name"}, {Key: "password", Path: "word", Mode: ptr.To[int32](0o777)}},
		}}),
	)
	mounted, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, want map[string]string) {
		t.Helper()
		got := tree(t, mounted[name].HostPath)
		for path, content := range want {
			if got[path] != content {
				t.Errorf("%s: %s is %q, want %q", name, path, got[path], content)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s shows %v, want %v", name, got, want)
		}
	}
	check("conf", map[string]string{"colour": "-rw-r----- blue", "size": "-rw-r----- 9", "blob": "-rw-r----- \x00\x01"})
	check("cred", map[string]string{"a/b/name": "-r-------- me", "word": "-rwxrwxrwx sesame"})

	h.objects.configMaps["settings"] = &corev1.ConfigMap{Data: map[string]string{"colour": "red"}}
	if err := h.Refresh(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	check("conf", map[string]string{"colour": "-rw-r----- red"})
}

func TestErrorsAreSpelledAsKubelets(t *testing.T) {
	h := newFixture(t)
	missing := corev1.LocalObjectReference{Name: "nothing"}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	host := func(path string, kind corev1.HostPathType) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}
	}
	for _, test := range []struct {
		name   string
		source corev1.VolumeSource
		want   string
	}{
		{"config map", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: missing}}, `configmap "nothing" not found`},
		{"secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nothing"}}, `secret "nothing" not found`},
		{"key", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login", Items: []corev1.KeyToPath{{Key: "x", Path: "x"}}}}, "references non-existent secret key: x"},
		{"config key", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Items: []corev1.KeyToPath{{Key: "x", Path: "x"}}}}, "configmap references non-existent config key: x"},
		{"sources", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: missing}}, {Secret: &corev1.SecretProjection{LocalObjectReference: missing}},
		}}}, `[configmap "nothing" not found, secret "nothing" not found]`},
		{"path", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login", Items: []corev1.KeyToPath{{Key: "name", Path: "../x"}}}}, "invalid path: must not contain '..': ../x"},
		{"directory", host(file, corev1.HostPathDirectory), "hostPath type check failed: " + file + " is not a directory"},
		{"directory or create", host(file, corev1.HostPathDirectoryOrCreate), "hostPath type check failed: " + file + " is not a directory"},
		{"no file", host(file+"2", corev1.HostPathFile), "hostPath type check failed: " + file + "2 is not a file"},
		{"socket", host(file, corev1.HostPathSocket), "hostPath type check failed: " + file + " is not a socket file"},
		{"char device", host(file, corev1.HostPathCharDev), "hostPath type check failed: " + file + " is not a character device"},
		{"block device", host("/dev/null", corev1.HostPathBlockDev), "hostPath type check failed: /dev/null is not a block device"},
		{"type", host(file, "Fifo"), "Fifo is an invalid volume type"},
		{"backsteps", host("/etc/../etc", ""), "invalid HostPath `/etc/../etc`: must not contain '..'"},
		{"medium", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Tape"}}, `unknown storage medium "Tape"`},
		{"huge pages", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}, "medium HugePages-2Mi: hugePages storage requested, but there is no resource request for huge pages"},
		{"network", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "no volume plugin matched: svclet does not mount volumes of type iscsi: use a volume of type csi of the driver iscsi.csi.k8s.io"},
		{"vendor", corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{}}, "no volume plugin matched: svclet does not mount volumes of type flexVolume: use a volume of type csi of the vendor's driver, or mount it on the node and use a PersistentVolume of type local"},
		{"repository", corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}, "no volume plugin matched: svclet does not mount volumes of type gitRepo: clone the repository in an init container, into a volume of type emptyDir"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := h.Mount(t.Context(), podOf(volumeOf("v", test.source)))
			if want := `MountVolume.SetUp failed for volume "v" : ` + test.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			var one *Error
			if !errors.As(err, &one) || one.Volume != "v" {
				t.Errorf("the error does not name the volume")
			}
		})
	}
}

func TestAFailedVolumeDoesNotKeepOthersFromBeingMounted(t *testing.T) {
	h := newFixture(t)
	mounted, err := h.Mount(t.Context(), podOf(
		volumeOf("bad", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nothing"}}),
		volumeOf("worse", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}),
		volumeOf("good", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
	))
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) || len(several.Unwrap()) != 2 {
		t.Errorf("want two errors, got %v", err)
	}
	if len(mounted) != 1 || mounted["good"].HostPath == "" {
		t.Errorf("mounted: %v", mounted)
	}
}

func TestOnlyVolumesThatContainersUseAreMounted(t *testing.T) {
	h := newFixture(t)
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	pod := podOf(volumeOf("main", empty))
	pod.Spec.Volumes = append(pod.Spec.Volumes, volumeOf("unused", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nothing"}}),
		volumeOf("first", empty), volumeOf("debug", empty))
	mounts := func(name string) []corev1.VolumeMount { return []corev1.VolumeMount{{Name: name, MountPath: "/x"}} }
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: mounts("first")}}
	mount := func(pod *corev1.Pod, want ...string) {
		t.Helper()
		mounted, err := h.Mount(t.Context(), pod)
		if got := slices.Sorted(maps.Keys(mounted)); err != nil || !slices.Equal(got, want) {
			t.Errorf("mounted %q, %v, want %q", got, err, want)
		}
		entries, err := os.ReadDir(filepath.Join(h.PodDir(pod.UID), "volumes/kubernetes.io~empty-dir"))
		if err != nil || len(entries) != len(want) {
			t.Errorf("made %v, %v, want %q", entries, err, want)
		}
	}
	mount(pod, "first", "main")
	debugged := pod.DeepCopy()
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: mounts("debug")}}}
	mount(debugged, "debug", "first", "main")
	mount(pod, "debug", "first", "main") // which does not know the newest container yet
	if err := h.Refresh(t.Context(), debugged); err != nil {
		t.Error(err)
	}
}

func TestAVolumeThatOnlyEphemeralContainersUseDoesNotFailThePod(t *testing.T) {
	h := newFixture(t)
	pod := podOf(volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}}),
		volumeOf("debug", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nothing"}}))
	main := &pod.Spec.Containers[0]
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: main.VolumeMounts[1:]}}
	main.VolumeMounts, pod.Spec.EphemeralContainers = main.VolumeMounts[:1], []corev1.EphemeralContainer{debug}
	mounted, err := h.Mount(t.Context(), pod)
	if got := slices.Sorted(maps.Keys(mounted)); err != nil || !slices.Equal(got, []string{"cred"}) {
		t.Errorf("mounted %q, %v", got, err)
	}
	if more, err := h.MountMore(t.Context(), pod, sets.New("debug")); err == nil {
		t.Errorf("mounted %v for the ephemeral container", more)
	}
}

// An agent that was restarted finds an ephemeral container running, and its volume's object missing.
func TestAVolumeOfARunningEphemeralContainerIsMountedLater(t *testing.T) {
	h := newFixture(t)
	pod := podOf(volumeOf("debug", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "later"}}))
	main := &pod.Spec.Containers[0]
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: main.VolumeMounts}}
	main.VolumeMounts, pod.Spec.EphemeralContainers = nil, []corev1.EphemeralContainer{debug}
	if mounted, err := h.Mount(t.Context(), pod); err != nil || len(mounted) > 0 {
		t.Errorf("mounted %v, %v", mounted, err)
	}
	if err := h.Refresh(t.Context(), pod); err == nil {
		t.Error("the volume is refreshed without its object")
	}
	ended := pod.DeepCopy()
	ended.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for _, step := range []struct {
		rule string
		do   func() error
		due  int
	}{
		{"it is retried", func() error { return nil }, 1},
		{"until the container has ended", func() error { return h.Refresh(t.Context(), ended) }, 0},
		{"a set-up does not wait for it then", func() error { _, err := h.Mount(t.Context(), ended); return err }, 0},
		{"and else tries it", func() error { _, err := h.Mount(t.Context(), pod); return err }, 1},
		{"until it is mounted", func() error {
			h.objects.secrets["later"] = h.objects.secrets["login"]
			return h.Refresh(t.Context(), pod)
		}, 0},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.rule, err)
		}
		if got := h.refreshed(); len(got) != step.due {
			t.Errorf("%s: %v are retried", step.rule, got)
		}
	}
	if got := tree(t, filepath.Join(h.PodDir(pod.UID), "volumes/kubernetes.io~secret/debug")); len(got) != 2 {
		t.Errorf("shows %v", got)
	}
}

func TestAVolumeThatCannotBeMountedAgainIsStillRefreshed(t *testing.T) {
	h := newFixture(t)
	pod := podOf(volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login"}}))
	mounted, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	secret := h.objects.secrets["login"]
	delete(h.objects.secrets, "login")
	if again, err := h.Mount(t.Context(), pod); err == nil || len(again) > 0 {
		t.Errorf("mounted %v, %v", again, err)
	}
	secret.Data = map[string][]byte{"name": []byte("you")}
	h.objects.secrets["login"] = secret
	if err := h.Refresh(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if got := tree(t, mounted["cred"].HostPath); len(got) != 1 || !strings.HasSuffix(got["name"], " you") {
		t.Errorf("shows %v", got)
	}
}

func TestOptionalObjectsMayBeMissing(t *testing.T) {
	h := newFixture(t)
	missing := corev1.LocalObjectReference{Name: "nothing"}
	pod := podOf(
		volumeOf("conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: missing, Optional: ptr.To(true)}}),
		volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "login", Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "x", Path: "x"}, {Key: "name", Path: "n"}},
		}}),
	)
	mounted, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := tree(t, mounted["conf"].HostPath); len(got) > 0 {
		t.Errorf("conf shows %v", got)
	}
	if got := tree(t, mounted["cred"].HostPath); len(got) != 1 || got["n"] == "" {
		t.Errorf("cred shows %v", got)
	}
}
