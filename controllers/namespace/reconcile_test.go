package namespace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/discovery"
)

// fixture is the controller with an empty namespace ns that was deleted at now.
type fixture struct {
	*reconciler
	time      time.Time // of the controller's clock
	held      bool      // whether the namespace has a finalizer in its metadata
	fails     bool      // whether finalizations fail
	finalized int       // how often it was finalized
	reported  int       // how often its status was written
}

var errRefused = errors.New("refused")

func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fixture{time: now}
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "1", DeletionTimestamp: &metav1.Time{Time: now}, Finalizers: []string{"example.com/held"}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ns).WithStatusSubresource(ns).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			err := c.Get(ctx, key, obj)
			if !f.held { // the fake client needs one in its store
				obj.SetFinalizers(nil)
			}
			return err
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, obj client.Object, _ ...client.SubResourceUpdateOption) error {
			if of == "status" {
				f.reported++
				return c.Status().Update(ctx, obj)
			}
			if f.fails {
				return errRefused
			}
			f.finalized++
			obj.SetFinalizers(ns.Finalizers)
			return c.Update(ctx, obj)
		},
	}).Build()
	metadata, _ := fakeMetadata(nil, nil)
	served := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
	f.reconciler = &reconciler{
		client: c, live: c, content: content{metadata, discovery.New(served, clock.RealClock{}), ""},
		grace: 5 * time.Second, now: func() time.Time { return f.time },
	}
	return f
}

// expect syncs the namespace, and checks when it is synced next and whether it was finalized.
func (f *fixture) expect(t *testing.T, after time.Duration, finalized int) {
	t.Helper()
	result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "ns"}})
	if f.fails != errors.Is(err, errRefused) || !f.fails && err != nil {
		t.Fatal(err)
	}
	if result.RequeueAfter != after || f.finalized != finalized {
		t.Errorf("again in %s, finalized %d times; want %s, %d times", result.RequeueAfter, f.finalized, after, finalized)
	}
}

func TestTheGracePeriodCountsByTheControllersClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.time = f.time.Add(ahead)
			f.expect(t, 5*time.Second, 0)
			f.time = f.time.Add(2 * time.Second)
			f.expect(t, 3*time.Second, 0)
			f.time = f.time.Add(3 * time.Second)
			f.expect(t, 0, 1)
		})
	}
}

func TestTheGracePeriodOfANamespaceIsForgottenWithIt(t *testing.T) {
	f := newFixture(t)
	f.expect(t, 5*time.Second, 0)
	f.time, f.fails = f.time.Add(5*time.Second), true
	f.expect(t, 0, 0)
	if len(f.observed.times) != 1 {
		t.Error("a finalization that fails ends the grace period")
	}
	f.fails = false
	f.expect(t, 0, 1)
	if len(f.observed.times) > 0 {
		t.Errorf("%v is kept", f.observed.times)
	}
}

func TestTheConditionsOfAFinalizedNamespaceSayThatItIsEmpty(t *testing.T) {
	for _, test := range []struct {
		name     string
		held     bool
		spec     []corev1.FinalizerName
		reported int
	}{
		{"with another finalizer in its metadata", true, nil, 1},
		{"with another finalizer in its spec", false, []corev1.FinalizerName{"example.com/held"}, 1},
		{"not if it is deleted at once", false, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.grace, f.held = 0, test.held
			var ns corev1.Namespace
			get := func() {
				t.Helper()
				if err := f.client.Get(t.Context(), client.ObjectKey{Name: "ns"}, &ns); err != nil {
					t.Fatal(err)
				}
			}
			get()
			ns.Finalizers, ns.Spec.Finalizers = []string{"example.com/held"}, append(ns.Spec.Finalizers, test.spec...)
			if err := f.client.Update(t.Context(), &ns); err != nil {
				t.Fatal(err)
			}
			ns.Status.Phase = corev1.NamespaceTerminating
			setConditions(&ns.Status, remaining{resources: map[schema.GroupVersionResource]int{configMaps: 1}}.conditions(), now)
			if err := f.client.Status().Update(t.Context(), &ns); err != nil {
				t.Fatal(err)
			}
			f.reported = 0
			f.expect(t, 0, 1)
			if f.reported != test.reported {
				t.Errorf("the status was written %d times, want %d", f.reported, test.reported)
			}
			if get(); !slices.Equal(ns.Spec.Finalizers, test.spec) {
				t.Errorf("finalizers %v are left, want %v", ns.Spec.Finalizers, test.spec)
			}
			remain := slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Status == corev1.ConditionTrue })
			if remain != (test.reported == 0) {
				t.Errorf("conditions: %v", ns.Status.Conditions)
			}
		})
	}
}

func TestAnotherNamespaceOfTheSameNameHasAGracePeriodOfItsOwn(t *testing.T) {
	var o observed
	ns := func(uid string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: types.UID(uid)}}
	}
	first, second := now, now.Add(time.Second)
	got := []time.Time{o.at(ns("1"), first), o.at(ns("1"), second), o.at(ns("2"), second)}
	if want := []time.Time{first, first, second}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
