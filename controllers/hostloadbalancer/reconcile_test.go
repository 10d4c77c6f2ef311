package hostloadbalancer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// current returns the addresses of a service's load balancer.
func current(svc *corev1.Service) string {
	var addresses []string
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	return strings.Join(addresses, ",")
}

// firstPort changes the first port of a service.
func firstPort(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].Port = number }
}

// onePort removes the ports after the first one.
func onePort(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }

// Otherwise another service would get the port of one whose port has changed.
func TestTheStatusHasTheRecordOfPortsAndAHiddenNodePortIsAnEventOnce(t *testing.T) {
	web := balancer("web", 1, 30080, nil)
	c := fake.NewClientBuilder().WithObjects(web, node("a", nil, "10.0.0.1", "10.0.0.2")).WithStatusSubresource(web).Build()
	recorder := record.NewFakeRecorder(100)
	r := &reconciler{client: c, recorder: recorder, now: func() time.Time { return time.Unix(0, 0) }}
	// sync expects the ports of the first address, and that the others have none, after three syncs, and the events.
	sync := func(want []int32, events ...string) {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(web), web); err != nil {
			t.Fatal(err)
		}
		var got []int32
		for i, ingress := range web.Status.LoadBalancer.Ingress {
			for _, p := range ingress.Ports {
				got = append(got, p.Port*int32(1-i)) //nolint:gosec // there are two
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the record has %v, want %v", got, want)
		}
		var recorded []string
		for len(recorder.Events) > 0 {
			recorded = append(recorded, <-recorder.Events)
		}
		if !slices.Equal(recorded, events) {
			t.Errorf("events: got %q, want %q", recorded, events)
		}
	}
	const ensured = "Normal EnsuredLoadBalancer Ensured load balancer"
	sync([]int32{30080}, ensured)
	if err := c.Create(t.Context(), nodePort("node-port", 2, 30080)); err != nil {
		t.Fatal(err)
	}
	sync([]int32{30080}, "Warning PortConflict port 30080/TCP of the nodes, a node port of this service, is used by the load balancer of service ns/web, which had it first: choose another port")
	web.Spec.Ports[0].Port = 80
	if err := c.Update(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	sync([]int32{80}, ensured)
}

// The port 30080 is that of another service, too, from when web has lost its only endpoint until
// it has one again.
func TestALoadBalancerKeepsItsPortsWhileItHasNoAddresses(t *testing.T) {
	rival := balancer("rival", 0, 30080, nil)
	for name, test := range map[string]struct {
		requested string                  // spec.loadBalancerIP
		other     *corev1.Service         // has the port, too
		meanwhile []func(*corev1.Service) // changes of web without addresses
		lost      bool
	}{
		"a node port":                                     {other: nodePort("other", 2, 30080)},
		"an older load balancer":                          {other: rival},
		"a node port, and a requested address":            {other: nodePort("other", 2, 30080), requested: "10.0.0.1"},
		"an older load balancer, and a requested address": {other: rival, requested: "10.0.0.1"},
		"another port is added":                           {other: nodePort("other", 2, 30080), meanwhile: []func(*corev1.Service){alsoAt(81)}},
		"the port changes, and back":                      {other: nodePort("other", 2, 30080), meanwhile: []func(*corev1.Service){firstPort(80), firstPort(30080)}, lost: true},
		"a reserved port is added, and removed":           {other: rival, meanwhile: []func(*corev1.Service){alsoAt(22), onePort}, lost: true},
		"the type changes, and back": {other: rival, lost: true, meanwhile: []func(*corev1.Service){
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			web := balancer("web", 1, 30080, both(local, func(s *corev1.Service) { s.Spec.LoadBalancerIP = test.requested }))
			slice := endpoint("web", "a", true)
			slice.Name = "web"
			c := fake.NewClientBuilder().WithObjects(web, slice, node("a", nil, "10.0.0.1")).WithStatusSubresource(web).Build()
			r := &reconciler{client: c, recorder: record.NewFakeRecorder(100), reserved: []int{22}, now: func() time.Time { return time.Unix(0, 0) }}
			sync := func(want string) {
				t.Helper()
				for range 2 {
					if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(web), web); err != nil {
					t.Fatal(err)
				}
				if got := current(web); got != want {
					t.Errorf("the load balancer has %q, want %q; %+v", got, want, web.Status.Conditions)
				}
			}
			update := func(obj client.Object) {
				t.Helper()
				if err := c.Update(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			sync("10.0.0.1")
			*slice.Endpoints[0].Conditions.Ready = false
			update(slice)
			sync("")
			if err := c.Create(t.Context(), test.other.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			sync("")
			for _, change := range test.meanwhile {
				change(web)
				update(web)
				sync("")
			}
			*slice.Endpoints[0].Conditions.Ready = true
			update(slice)
			if test.lost {
				sync("")
			} else {
				sync("10.0.0.1")
			}
		})
	}
}

func TestTheRecordOfPortsGoesWithItsService(t *testing.T) {
	web := balancer("web", 1, 30080, nil)
	c := fake.NewClientBuilder().WithObjects(web, node("a", nil, "10.0.0.1")).WithStatusSubresource(web).Build()
	r := &reconciler{client: c, recorder: record.NewFakeRecorder(100), now: func() time.Time { return time.Unix(0, 0) }}
	sync := func(want int) {
		t.Helper()
		for range 2 { // the first may give the service its ports
			if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.kept) != want {
			t.Errorf("got %v, want %d", r.kept, want)
		}
	}
	sync(1)
	if err := c.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	sync(0)
}

func TestReconcileWritesChangesOnly(t *testing.T) {
	old, young := balancer("old", 1, 80, nil), balancer("young", 2, 80, nil)
	c := fake.NewClientBuilder().WithObjects(old, young, node("a", nil, "10.0.0.1")).WithStatusSubresource(old).Build()
	recorder := record.NewFakeRecorder(100)
	r := &reconciler{client: c, recorder: recorder, now: func() time.Time { return time.Unix(0, 0) }}
	sync := func(events ...string) {
		t.Helper()
		for range 2 { // nothing is left to do for the second
			if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if !slices.Equal(got, events) {
			t.Errorf("events: got %q, want %q", got, events)
		}
	}
	expect := func(svc *corev1.Service, address string, failed bool) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			t.Fatal(err)
		}
		if got := current(svc); got != address || meta.IsStatusConditionTrue(svc.Status.Conditions, corev1.LoadBalancerPortsError) != failed {
			t.Errorf("%s: got %+v", svc.Name, svc.Status)
		}
	}
	sync("Normal EnsuredLoadBalancer Ensured load balancer",
		"Warning SyncLoadBalancerFailed Error syncing load balancer: port 80/TCP of the nodes is used by service ns/old: choose another port")
	expect(old, "10.0.0.1", false)
	expect(young, "", true)

	if err := c.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	sync("Normal EnsuredLoadBalancer Ensured load balancer")
	expect(young, "10.0.0.1", false)
}

// TestAServiceThatIsNoLoadBalancerAnyMoreHasNoConflict: its ports are no longer those of nodes.
func TestAServiceThatIsNoLoadBalancerAnyMoreHasNoConflict(t *testing.T) {
	old, young := balancer("old", 1, 80, nil), balancer("young", 2, 80, nil)
	c := fake.NewClientBuilder().WithObjects(old, young, node("a", nil, "10.0.0.1")).WithStatusSubresource(old).Build()
	r := &reconciler{client: c, recorder: record.NewFakeRecorder(100), now: func() time.Time { return time.Unix(0, 0) }}
	for _, conflict := range []bool{true, false} {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(young), young); err != nil {
			t.Fatal(err)
		}
		if meta.IsStatusConditionTrue(young.Status.Conditions, corev1.LoadBalancerPortsError) != conflict {
			t.Errorf("type %s: conditions %v", young.Spec.Type, young.Status.Conditions)
		}
		young.Spec.Type = corev1.ServiceTypeClusterIP
		if err := c.Update(t.Context(), young); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServicesGetTheirAddressesAfterAFailureAtAnyWrite(t *testing.T) {
	const writes = 3 // the status of both services, and of the second without the first
	for failing := range writes + 1 {
		for _, done := range []bool{false, true} { // whether the write whose response is lost was done
			old, young := balancer("old", 1, 80, nil), balancer("young", 2, 80, nil)
			base := fake.NewClientBuilder().WithObjects(old, young, node("a", nil, "10.0.0.1")).WithStatusSubresource(old).Build()
			sent, failures := 0, 0
			c := interceptor.NewClient(base, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					sent++
					switch {
					case sent != failing:
						return w.SubResource(sub).Patch(ctx, obj, patch, opts...)
					case done:
						return errors.Join(w.SubResource(sub).Patch(ctx, obj, patch, opts...), errors.New("no connection"))
					}
					return errors.New("no connection")
				},
			})
			sync := func(want string) {
				t.Helper()
				r := &reconciler{client: c, recorder: record.NewFakeRecorder(100), now: func() time.Time { return time.Unix(0, 0) }}
				if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
					failures++
					if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
						t.Fatal(err)
					}
				}
				if err := base.Get(t.Context(), client.ObjectKeyFromObject(young), young); err != nil {
					t.Fatal(err)
				}
				conflict := meta.IsStatusConditionTrue(young.Status.Conditions, corev1.LoadBalancerPortsError)
				if got := current(young); got != want || conflict != (want == "") {
					t.Errorf("write %d, done %v: the second service has %+v, want %q", failing, done, young.Status, want)
				}
			}
			sync("")
			if err := base.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil || current(old) != "10.0.0.1" {
				t.Errorf("write %d, done %v: the first service has %+v, %v", failing, done, old.Status, err)
			}
			if err := base.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			sync("10.0.0.1")
			if failures != min(failing, 1) {
				t.Errorf("write %d, done %v: %d failed syncs, want %d", failing, done, failures, min(failing, 1))
			}
		}
	}
}
