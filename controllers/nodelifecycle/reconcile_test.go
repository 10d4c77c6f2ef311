package nodelifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

const gracePeriod = 50 * time.Second

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// errNoResponse is the error of reads from the API server.
	errNoResponse = errors.New("no response")
)

// fixture is the controller with a cache, and an API server whose leases the cache may lack.
type fixture struct {
	*reconciler
	cache, api client.Client
	now        time.Time
	fails      bool // whether reads from the API server fail
	// meanwhile, if not nil, is called during reads from the API server.
	meanwhile func()
}

// newFixture returns a fixture with a ready node and its lease.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	pods := index.PodsByNode()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}},
	}
	f := &fixture{now: start}
	f.cache = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(node).WithObjects(node, lease).WithIndex(pods.Object, pods.Name, pods.Values).Build()
	f.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(lease).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if f.fails {
				return errNoResponse
			}
			if f.meanwhile != nil {
				f.meanwhile()
			}
			return w.Get(ctx, key, obj, opts...)
		},
	}).Build()
	f.reconciler = &reconciler{
		client: f.cache, live: f.api, recorder: record.NewFakeRecorder(100), now: func() time.Time { return f.now }, metrics: newMetrics(),
		enqueue: func(...reconcile.Request) {}, fleet: fleet.New(fleet.Config{GracePeriod: gracePeriod, StartupGracePeriod: gracePeriod}, start),
	}
	return f
}

// renew renews the lease at the API server.
func (f *fixture) renew(t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.api.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: "n"}, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: f.now}
	if err := f.api.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// newRenewed returns a fixture at the end of the grace period, a second after a renewal that the
// cache lacks.
func newRenewed(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.expect(t, corev1.ConditionTrue)
	f.now = f.now.Add(gracePeriod - time.Second)
	f.renew(t)
	f.now = f.now.Add(time.Second)
	return f
}

// expect syncs the node, and checks its readiness.
func (f *fixture) expect(t *testing.T, want corev1.ConditionStatus) reconcile.Result {
	t.Helper()
	result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "n"}})
	if f.fails != errors.Is(err, errNoResponse) || !f.fails && err != nil {
		t.Fatalf("reads fail: %v, error %v", f.fails, err)
	}
	node := &corev1.Node{}
	if err := f.cache.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	if got := readiness(node); got != want {
		t.Errorf("%s after the start: the node is ready: %s, want %s", f.now.Sub(start), got, want)
	}
	return result
}

func TestARenewalThatTheCacheLacksIsAHeartbeat(t *testing.T) {
	f := newRenewed(t)
	if got := f.expect(t, corev1.ConditionTrue).RequeueAfter; got != gracePeriod {
		t.Errorf("requeued after %s, want %s", got, gracePeriod)
	}
	f.now = f.now.Add(gracePeriod)
	f.expect(t, corev1.ConditionUnknown) // the lease was not renewed again
}

func TestARenewalThatTheWatchDeliversMeanwhileIsAHeartbeat(t *testing.T) {
	f := newRenewed(t)
	f.meanwhile = func() {
		lease := &coordinationv1.Lease{}
		if err := f.cache.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: "n"}, lease); err != nil {
			t.Fatal(err)
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: f.now.Add(-time.Second)}
		if err := f.cache.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		f.fleet.Renewed("n", lease.Spec.RenewTime.Time, f.now)
	}
	f.expect(t, corev1.ConditionTrue)
}

func TestANodeIsUnreachableIfItsLeaseAtTheAPIServer(t *testing.T) {
	for name, change := range map[string]func(context.Context, client.Client, *coordinationv1.Lease) error{
		"is that of the cache": func(context.Context, client.Client, *coordinationv1.Lease) error { return nil },
		"has never been renewed": func(ctx context.Context, c client.Client, lease *coordinationv1.Lease) error {
			lease.Spec.RenewTime = nil
			return c.Update(ctx, lease)
		},
		"does not exist": func(ctx context.Context, c client.Client, lease *coordinationv1.Lease) error {
			return c.Delete(ctx, lease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.expect(t, corev1.ConditionTrue)
			lease := &coordinationv1.Lease{}
			if err := f.api.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: "n"}, lease); err != nil {
				t.Fatal(err)
			}
			if err := change(t.Context(), f.api, lease); err != nil {
				t.Fatal(err)
			}
			f.now = f.now.Add(gracePeriod)
			f.expect(t, corev1.ConditionUnknown)
		})
	}
}

func TestANodeIsNotUnreachableWhileItsLeaseCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.expect(t, corev1.ConditionTrue)
	f.now, f.fails = f.now.Add(gracePeriod), true
	f.expect(t, corev1.ConditionTrue)
}
