package objects

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/footprint/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func newStore(t *testing.T, s *server, change func(*Options)) (*Store, changes) {
	t.Helper()
	changed := make(changes, 100)
	options := Options{Client: s.client(t), Changed: func(pods []types.UID) { changed <- pods }, Random: func() float64 { return 0 }}
	if change != nil {
		change(&options)
	}
	store := New(options)
	t.Cleanup(store.Close)
	return store, changed
}

// podWith returns a pod with a ConfigMap and a Secret as volumes.
func podWith(uid, config, credential string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: uid, UID: types.UID(uid)}}
	pod.Spec.ServiceAccountName = "gardener"
	if config != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: config}},
		}})
	}
	if credential != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: credential},
		}})
	}
	return pod
}

func configOf(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Data: map[string]string{"key": value},
	}
}

func TestPodsShareOneWatchOfAnObject(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/configmaps/shared", configOf("1"))
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p1", "shared", ""))
	store.Register(podWith("p2", "shared", ""))
	object, err := store.ConfigMap(t.Context(), "n", "shared")
	if err != nil || object.Data["key"] != "1" {
		t.Fatalf("got %v, %v", object, err)
	}
	if object.ManagedFields != nil || object.Labels != nil {
		t.Errorf("more is kept than is needed: %v", object)
	}
	const watch = "watch namespaces/n/configmaps/shared"
	eventually(t, "a watch", func() bool { return s.watching() == 2 }) // and one of services
	s.put("namespaces/n/configmaps/shared", configOf("2"))
	if pods := changed.wait(t); !slices.Equal(pods, []types.UID{"p1", "p2"}) {
		t.Errorf("told of %v", pods)
	}
	if object, _ := store.ConfigMap(t.Context(), "n", "shared"); object.Data["key"] != "2" {
		t.Errorf("got %v", object)
	}
	if n := s.asked(watch); n != 1 {
		t.Errorf("%d watches", n)
	}
	store.Unregister("p1")
	if n := s.watching(); n != 2 {
		t.Errorf("%d watches while one pod is left", n)
	}
	store.Unregister("p2")
	eventually(t, "only services are watched", func() bool { return s.watching() == 1 })
	if _, err := store.ConfigMap(t.Context(), "n", "shared"); err == nil || err.Error() != `object "n"/"shared" not registered` {
		t.Errorf("got %v", err)
	}
}

func TestMetadataChangesAreNotReported(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/configmaps/c", configOf("1"))
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p", "c", ""))
	eventually(t, "a watch", func() bool { return s.watching() == 2 })
	other := configOf("1")
	other.Labels = map[string]string{"x": "y"}
	s.put("namespaces/n/configmaps/c", other)
	s.put("namespaces/n/configmaps/c", configOf("2"))
	changed.wait(t)
	select {
	case pods := <-changed:
		t.Errorf("told twice, of %v too", pods)
	default:
	}
}

func TestObjectsAreReportedWhenTheyAreCreated(t *testing.T) {
	s := newServer(t)
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p", "", "late"))
	_, err := store.Secret(t.Context(), "n", "late")
	if !apierrors.IsNotFound(err) || err.Error() != `secret "late" not found` {
		t.Fatalf("got %v", err)
	}
	eventually(t, "a watch", func() bool { return s.watching() == 2 })
	s.put("namespaces/n/secrets/late", &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}})
	if pods := changed.wait(t); !slices.Equal(pods, []types.UID{"p"}) {
		t.Errorf("told of %v", pods)
	}
	if object, err := store.Secret(t.Context(), "n", "late"); err != nil || string(object.Data["k"]) != "v" {
		t.Errorf("got %v, %v", object, err)
	}
	s.remove("namespaces/n/secrets/late")
	changed.wait(t)
	if _, err := store.Secret(t.Context(), "n", "late"); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
}

func TestImmutableObjectsAreFetchedOnce(t *testing.T) {
	s := newServer(t)
	object := configOf("1")
	object.Immutable = ptr.To(true)
	s.put("namespaces/n/configmaps/c", object)
	store, _ := newStore(t, s, nil)
	store.Register(podWith("p", "c", ""))
	if _, err := store.ConfigMap(t.Context(), "n", "c"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "services are watched", func() bool { return s.watching() == 1 })
	if n := s.asked("watch namespaces/n/configmaps/c"); n != 0 {
		t.Errorf("watched %d times", n)
	}
}

func TestBrokenWatchesResumeWithoutAList(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/configmaps/c", configOf("1"))
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p", "c", ""))
	eventually(t, "a watch", func() bool { return s.watching() == 2 })
	s.breakWatches()
	eventually(t, "a second watch", func() bool { return s.watching() == 2 })
	s.put("namespaces/n/configmaps/c", configOf("2"))
	changed.wait(t)
	if n := s.asked("list namespaces/n/configmaps/c"); n != 1 {
		t.Errorf("listed %d times", n)
	}
	if n := s.asked("watch namespaces/n/configmaps/c"); n != 2 {
		t.Errorf("watched %d times", n)
	}
}

func TestExpiredWatchesListAgain(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/configmaps/c", configOf("1"))
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p", "c", ""))
	eventually(t, "a watch", func() bool { return s.watching() == 2 })
	s.mutex.Lock()
	s.oldest = s.version + 1
	s.hangUp()
	s.keep("namespaces/n/configmaps/c", configOf("2")) // a list gives what one can watch from
	s.mutex.Unlock()
	changed.wait(t)
	if n := s.asked("list namespaces/n/configmaps/c"); n != 2 {
		t.Errorf("listed %d times", n)
	}
}

func TestAnEndedRefusalIsReportedAsAChange(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/configmaps/c", configOf("1"))
	s.setRefuse(http.StatusForbidden)
	store, changed := newStore(t, s, nil)
	store.Register(podWith("p", "c", ""))
	_, err := store.ConfigMap(t.Context(), "n", "c")
	if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "failed to sync configmap cache: ") {
		t.Fatalf("got %v", err)
	}
	if _, err := store.Services(t.Context(), "n"); err == nil || err.Error() != "services have not yet been read at least once, cannot construct envvars" {
		t.Errorf("services: %v", err)
	}
	s.setRefuse(0)
	if pods := changed.wait(t); !slices.Equal(pods, []types.UID{"p"}) {
		t.Errorf("told of %v", pods)
	}
	if _, err := store.ConfigMap(t.Context(), "n", "c"); err != nil {
		t.Error(err)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	s := newServer(t)
	s.setRefuse(http.StatusForbidden)
	store, _ := newStore(t, s, func(o *Options) { o.Clock = clocktesting.NewFakeClock(time.Now()) })
	store.Register(podWith("p", "c", ""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.ConfigMap(ctx, "n", "c")
	if err == nil || !strings.HasPrefix(err.Error(), "failed to sync configmap cache: ") {
		t.Errorf("got %v", err)
	}
}

func TestAChangedPodsReferencesAreWatched(t *testing.T) {
	s := newServer(t)
	store, _ := newStore(t, s, nil)
	store.Register(podWith("p", "a", ""))
	store.Register(podWith("p", "b", "c"))
	store.mutex.Lock()
	names := []string{}
	for ref := range maps.Keys(store.entries) {
		names = append(names, string(ref.kind)+" "+ref.name)
	}
	store.mutex.Unlock()
	slices.Sort(names)
	if want := []string{"configmap b", "secret c"}; !slices.Equal(names, want) {
		t.Errorf("follows %v, want %v", names, want)
	}
}

func TestAllReferencesOfAPodAreFound(t *testing.T) {
	pod := podWith("p", "volume", "volume")
	name := func(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }
	env := func(n string) ([]corev1.EnvVar, []corev1.EnvFromSource) {
		return []corev1.EnvVar{
				{Name: "plain", Value: "x"},
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name(n + "key")}}},
				{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name(n + "key")}}},
			}, []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name(n + "all")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name(n + "all")}},
			}
	}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{name("pull"), {}}
	var init, main corev1.Container
	var debug corev1.EphemeralContainer
	init.Env, init.EnvFrom = env("init")
	main.Env, main.EnvFrom = env("main")
	debug.Env, debug.EnvFrom = env("debug")
	pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{init}, []corev1.Container{main}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("projected")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: name("projected")}},
		},
	}}})
	var got []string
	for ref := range references(pod) {
		got = append(got, string(ref.kind)+" "+ref.namespace+"/"+ref.name)
	}
	slices.Sort(got)
	want := []string{"secret n/pull"}
	for _, n := range []string{"debugall", "debugkey", "initall", "initkey", "mainall", "mainkey", "projected", "volume"} {
		want = append(want, "configmap n/"+n, "secret n/"+n)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func serviceOf(ip string) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{
		ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "web", Port: 80, NodePort: 30080}}, Selector: map[string]string{"a": "b"},
	}}
}

func TestServicesAreReducedToWhatVariablesNeed(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/services/shop", serviceOf("10.0.0.1"))
	s.put("namespaces/n/services/headless", serviceOf("None"))
	s.put("namespaces/default/services/kubernetes", serviceOf("10.0.0.2"))
	store, _ := newStore(t, s, nil)
	if _, err := store.Services(t.Context(), "n"); err == nil {
		t.Error("services are known before there is a pod")
	}
	store.Register(podWith("p", "", ""))
	names := func(namespace string) string {
		list, err := store.Services(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, service := range list {
			names = append(names, service.Name)
			if service.Spec.Selector != nil || service.Spec.Ports[0] != (corev1.ServicePort{Name: "web", Port: 80}) {
				t.Errorf("kept: %v", service)
			}
		}
		return strings.Join(names, " ")
	}
	if got := names("n") + "|" + names("default"); got != "shop|kubernetes" {
		t.Errorf("got %s", got)
	}
	eventually(t, "a watch", func() bool { return s.watching() == 1 })
	s.put("namespaces/n/services/bank", serviceOf("10.0.0.3"))
	s.remove("namespaces/n/services/shop")
	eventually(t, "the changes", func() bool { return names("n") == "bank" })
}

func TestClaimsAndPersistentVolumesAreRead(t *testing.T) {
	s := newServer(t)
	s.put("namespaces/n/persistentvolumeclaims/c", &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"}})
	s.put("persistentvolumes/v", &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "x"}})
	store, _ := newStore(t, s, nil)
	claim, err := store.PersistentVolumeClaim(t.Context(), "n", "c")
	if err != nil || claim.Spec.VolumeName != "v" {
		t.Errorf("got %v, %v", claim, err)
	}
	volume, err := store.PersistentVolume(t.Context(), "v")
	if err != nil || volume.Spec.StorageClassName != "x" {
		t.Errorf("got %v, %v", volume, err)
	}
}

func TestWithoutAnAPIServerObjectsReturnErrors(t *testing.T) {
	if _, err := (None{}).ConfigMap(t.Context(), "n", "c"); !errors.Is(err, errStandalone) {
		t.Error(err)
	}
	if services, err := (None{}).Services(t.Context(), "n"); err != nil || len(services) > 0 {
		t.Error(services, err)
	}
}
