package endpointslice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

// TestReconcile runs the controller in a group domain of its own: the library
// must reach everything through the scheme.
func TestReconcile(t *testing.T) {
	r := newReconciler(t, 2)
	for i := range 3 {
		create(t, r, pod(fmt.Sprint("pod-", i), fmt.Sprint("10.0.0.", i)))
	}
	create(t, r, service(), node("east"))
	want(t, r, "10.0.0.0 10.0.0.1", "10.0.0.2")
	for _, s := range slicesOf(t, r) {
		if owner := s.OwnerReferences[0]; owner.APIVersion != "core.example.com/v1" || owner.Name != "web" {
			t.Errorf("owner of %s: %v", s.Name, owner)
		}
	}

	t.Run("nothing is written that is right already", func(t *testing.T) {
		before := slicesOf(t, r)
		want(t, r, "10.0.0.0 10.0.0.1", "10.0.0.2")
		if diff := cmp.Diff(before, slicesOf(t, r)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("endpoints go with their pods", func(t *testing.T) {
		for _, name := range []string{"pod-0", "pod-1"} {
			if err := r.client.Delete(t.Context(), pod(name, "")); err != nil {
				t.Fatal(err)
			}
		}
		want(t, r, "10.0.0.2")
	})
	t.Run("slices of another owner of the same name are replaced", func(t *testing.T) {
		other := slicesOf(t, r)[0]
		other.OwnerReferences[0].UID = "another"
		if err := r.client.Update(t.Context(), &other); err != nil {
			t.Fatal(err)
		}
		want(t, r, "10.0.0.2")
		if s := slicesOf(t, r); s[0].Name == other.Name {
			t.Errorf("%s is still there", other.Name)
		}
	})
	t.Run("slices of another controller stay as they are", func(t *testing.T) {
		create(t, r, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "own", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		})
		want(t, r, "10.0.0.2", "192.0.2.1")
	})
	t.Run("a pod on a missing node is no endpoint, and is retried", func(t *testing.T) {
		lost := pod("lost", "10.0.0.9")
		lost.Spec.NodeName = "gone"
		create(t, r, lost)
		if _, err := r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), "Node gone Not Found") {
			t.Errorf("error %v", err)
		}
	})
}

// TestOrphanedSlicesStay: the garbage collector orphans them while their service is deleted.
func TestOrphanedSlicesStay(t *testing.T) {
	r := newReconciler(t, 100)
	deleted := service()
	deleted.Finalizers = []string{metav1.FinalizerOrphanDependents}
	create(t, r, pod("pod-0", "10.0.0.0"), node("east"), deleted)
	want(t, r, "10.0.0.0")
	if err := r.client.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	orphan := slicesOf(t, r)[0]
	orphan.OwnerReferences = nil
	if err := r.client.Update(t.Context(), &orphan); err != nil {
		t.Fatal(err)
	}
	want(t, r, "10.0.0.0")
	if s := slicesOf(t, r); s[0].Name != orphan.Name || len(s[0].OwnerReferences) > 0 {
		t.Errorf("slices %v", s)
	}
}

// TestASliceWithoutEndpointsIsWrittenOnce: its annotation with the time of the change stays.
func TestASliceWithoutEndpointsIsWrittenOnce(t *testing.T) {
	r := newReconciler(t, 100)
	writes := 0
	r.client = interceptor.NewClient(r.client.(client.WithWatch), interceptor.Funcs{
		// As the cache does.
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if all, ok := list.(*discoveryv1.EndpointSliceList); ok {
				for i := range all.Items {
					all.Items[i].SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
				}
			}
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, obj, opts...)
		},
	})
	created := service()
	created.CreationTimestamp = metav1.Unix(1700000000, 0)
	create(t, r, created)
	want(t, r, "")
	want(t, r, "")
	if s := slicesOf(t, r)[0]; writes != 0 || s.Annotations[corev1.EndpointsLastChangeTriggerTime] != "2023-11-14T22:13:20Z" {
		t.Errorf("%d updates, annotations %v", writes, s.Annotations)
	}
}

// TestHints spreads endpoints over zones as the processors of their nodes are.
func TestHints(t *testing.T) {
	r := newReconciler(t, 100)
	hinted := service()
	hinted.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	east := node("east")
	create(t, r, hinted, east)
	for i := range 4 {
		create(t, r, pod(fmt.Sprint("pod-", i), fmt.Sprint("10.0.0.", i)))
	}
	hints := func() map[string]int {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), request()); err != nil {
			t.Fatal(err)
		}
		zones := map[string]int{}
		for _, e := range slicesOf(t, r)[0].Endpoints {
			if e.Hints != nil {
				zones[e.Hints.ForZones[0].Name]++
			}
		}
		return zones
	}
	if got := hints(); len(got) != 0 {
		t.Errorf("nodes in one zone need no hints: %v", got)
	}
	create(t, r, node("west"))
	r.zones.outdate()
	if diff := cmp.Diff(map[string]int{"east": 2, "west": 2}, hints()); diff != "" {
		t.Error(diff)
	}
	if err := r.client.Delete(t.Context(), node("west")); err != nil {
		t.Fatal(err)
	}
	r.zones.outdate()
	if got := hints(); len(got) != 0 {
		t.Errorf("hints go with the zone: %v", got)
	}
}

func TestWeight(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(*corev1.Node)
		same   bool
	}{
		{"a heartbeat changes nothing", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		{"a node that is not ready does", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		{"so does another zone", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "west" }, false},
		{"and another number of processors", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3") }, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			n := node("east")
			test.change(n)
			if (weight(n) == weight(node("east"))) != test.same {
				t.Errorf("%+v", weight(n))
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		rule string
		o    options
		want []string
	}{
		{"the defaults are valid", options{concurrent: 5, maxEndpoints: 100}, nil},
		{"a slice holds from 1 to 1000 endpoints", options{concurrent: 5, maxEndpoints: 1001}, []string{"--max-endpoints-per-slice: 1001 must be from 1 to 1000"}},
		{"every invalid flag is reported", options{batch: -1}, []string{
			"--concurrent-service-endpoint-syncs: 0 must be at least 1", "--max-endpoints-per-slice: 0 must be from 1 to 1000",
			"--endpointslice-updates-batch-period: -1ns must not be negative",
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got []string
			for _, err := range test.o.validate() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func newReconciler(t *testing.T, maxEndpoints int32) *reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(schema.GroupVersion{Group: "core.example.com", Version: "v1"},
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: "discovery.example.com", Version: "v1"}, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	byService := index.SlicesByService()
	return &reconciler{
		client:       fake.NewClientBuilder().WithScheme(scheme).WithIndex(byService.Object, byService.Name, byService.Values).Build(),
		events:       record.NewFakeRecorder(100),
		maxEndpoints: maxEndpoints,
		zones:        zones{cache: topologycache.NewTopologyCache()},
		triggers:     endpointsliceutil.NewTriggerTimeTracker(),
	}
}

func create(t *testing.T, r *reconciler, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := r.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// want reconciles and compares the addresses in each slice.
func want(t *testing.T, r *reconciler, wanted ...string) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), request()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range slicesOf(t, r) {
		var addresses []string
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		slices.Sort(addresses)
		got = append(got, strings.Join(addresses, " "))
	}
	slices.Sort(got)
	// Which endpoints share a slice is the library's choice.
	all := func(s []string) []string { return slices.Sorted(slices.Values(strings.Fields(strings.Join(s, " ")))) }
	if len(got) != len(wanted) || !slices.Equal(all(got), all(wanted)) {
		t.Errorf("slices %q, want %q", got, wanted)
	}
}

func request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "web"}}
}

func slicesOf(t *testing.T, r *reconciler) []discoveryv1.EndpointSlice {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	if err := r.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
}

func pod(name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "east"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// node is a node in the zone of its name.
func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}
