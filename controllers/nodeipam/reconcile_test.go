package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestReconcileAtRandom creates and deletes nodes while writes fail, before or
// after they were done, and while the controller is restarted. Two nodes must
// never have the same CIDR, and at the end every node has one unless the cluster
// CIDR is exhausted.
func TestReconcileAtRandom(t *testing.T) {
	const slots = 8
	lost := errors.New("the connection is lost")
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		stable := false
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if !stable && random.IntN(5) == 0 {
					return lost
				}
				err := c.Patch(ctx, obj, patch, opts...)
				if !stable && random.IntN(5) == 0 {
					return lost
				}
				return err
			},
		})
		var r *reconciler
		restart := func() {
			r = &reconciler{
				client: c, live: c, recorder: record.NewFakeRecorder(1000), waiting: map[string]bool{},
				enqueue:   func(...reconcile.Request) {},
				allocator: newAllocator([]cluster{{netip.MustParsePrefix("10.0.0.0/21"), 24}}, nil),
			}
		}
		sync := func(name string) {
			_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
			if err != nil && !errors.Is(err, lost) && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
		restart()
		for step := range 200 {
			name := fmt.Sprint("node-", random.IntN(slots+3))
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			switch random.IntN(12) {
			case 0:
				restart()
			case 1, 2:
				if err := client.IgnoreNotFound(c.Delete(t.Context(), node)); err != nil {
					t.Fatal(err)
				}
			case 3, 4, 5:
				if err := c.Create(t.Context(), node); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
			}
			sync(name)
			if step%10 == 0 {
				distinct(t, seed, c)
			}
		}
		stable = true
		var nodes corev1.NodeList
		if err := c.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i := range slots + 3 {
				sync(fmt.Sprint("node-", i))
			}
		}
		if given := distinct(t, seed, c); given != min(len(nodes.Items), slots) {
			t.Errorf("seed %d: %d of %d nodes have a range", seed, given, len(nodes.Items))
		}
	}
}

// distinct fails if two nodes have the same CIDR, and returns the number of nodes
// that have one.
func distinct(t *testing.T, seed uint64, c client.Client) int {
	t.Helper()
	var nodes corev1.NodeList
	if err := c.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{}
	for _, n := range nodes.Items {
		for _, r := range n.Spec.PodCIDRs {
			if other := holders[r]; other != "" {
				t.Fatalf("seed %d: %s and %s have %s", seed, other, n.Name, r)
			}
			holders[r] = n.Name
		}
	}
	return len(holders)
}

func TestWaitingNodeIsEnqueuedWhenACIDRBecomesFree(t *testing.T) {
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(node("a"), node("b")).Build()
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	events := record.NewFakeRecorder(10)
	var enqueued []reconcile.Request
	r := &reconciler{
		client: c, live: c, recorder: events, waiting: map[string]bool{},
		enqueue:   func(requests ...reconcile.Request) { enqueued = append(enqueued, requests...) },
		allocator: newAllocator([]cluster{{netip.MustParsePrefix("10.0.0.0/24"), 24}}, nil),
	}
	sync := func(name string) {
		if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	sync("a")
	sync("b")
	if got, want := <-events.Events, "Normal CIDRNotAvailable Node b status is now: CIDRNotAvailable"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if err := c.Delete(t.Context(), node("a")); err != nil {
		t.Fatal(err)
	}
	sync("a")
	if len(enqueued) != 1 || enqueued[0].Name != "b" {
		t.Errorf("enqueued: %v, want b", enqueued)
	}
	sync("b")
	if b := node("b"); c.Get(t.Context(), client.ObjectKeyFromObject(b), b) != nil || b.Spec.PodCIDR != "10.0.0.0/24" {
		t.Errorf("b has %q", b.Spec.PodCIDR)
	}
}
