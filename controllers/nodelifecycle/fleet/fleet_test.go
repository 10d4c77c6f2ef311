package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestStateOfZone(t *testing.T) {
	f := New(Config{UnhealthyZone: 0.55}, start)
	for _, test := range []struct {
		nodes, notReady int
		want            State
	}{
		{0, 0, Normal}, {1, 0, Normal}, {1, 1, FullDisruption}, {3, 2, Normal}, {3, 3, FullDisruption},
		{4, 2, Normal}, {4, 3, PartialDisruption}, {6, 3, Normal}, {20, 10, Normal}, {20, 11, PartialDisruption}, {20, 20, FullDisruption},
	} {
		if got := f.state(test.nodes, test.notReady); got != test.want {
			t.Errorf("%d of %d nodes not ready: %s, want %s", test.notReady, test.nodes, got, test.want)
		}
	}
}

// TestInvariantsAtRandom adds, deletes and moves random nodes, which send heartbeats or
// stop. It checks that the counts of the zones are right; that a node is unreachable as
// soon as its grace period is over, and not before; and that no taint is added in an
// outage, and not more than one per interval and zone.
func TestInvariantsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		config := Config{GracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute, EvictionRate: 0.1, SecondaryEvictionRate: 0.05, LargeZone: 4, UnhealthyZone: 0.55}
		w := &fixture{t: t, random: random, seed: seed, fleet: New(config, start), now: start,
			nodes: map[string]*corev1.Node{}, heartbeats: map[string]time.Time{}, requeued: map[string]time.Time{}, tainted: map[*zone]time.Time{}}
		for range 4000 {
			w.step()
		}
	}
}

// fixture is a fleet with its nodes, as the API server has them.
type fixture struct {
	t          *testing.T
	random     *rand.Rand
	seed       uint64
	fleet      *Fleet
	now        time.Time
	nodes      map[string]*corev1.Node
	heartbeats map[string]time.Time // the last one of each node
	requeued   map[string]time.Time // when each node is synced next
	tainted    map[*zone]time.Time  // when a node of each zone was tainted last
}

func (w *fixture) step() {
	// The clock advances, and requeued nodes are synced.
	w.now = w.now.Add(time.Duration(w.random.IntN(1000)) * time.Millisecond)
	for name, at := range w.requeued {
		if !at.After(w.now) {
			w.sync(name)
		}
	}
	name := fmt.Sprint("n", w.random.IntN(12))
	n := w.nodes[name]
	switch what := w.random.IntN(100); {
	case n == nil:
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, w.now.UnixNano())), Labels: map[string]string{corev1.LabelTopologyZone: w.zone()}}}
		w.nodes[name], w.heartbeats[name] = n, w.now
		if w.random.IntN(4) > 0 {
			setReady(n, "True", w.now)
		}
		w.sync(name)
	case what < 2:
		w.fleet.Gone(name)
		delete(w.nodes, name)
		delete(w.requeued, name)
		w.syncAffected()
	case what < 4:
		n.Labels[corev1.LabelTopologyZone] = w.zone()
		w.sync(name)
	case what < 8 && w.now.After(w.heartbeats[name]):
		setReady(n, []string{"True", "True", "False"}[w.random.IntN(3)], w.now)
		w.heartbeats[name] = w.now
		w.sync(name)
	case what < 10:
		n.Spec.Taints = nil
		w.sync(name)
	case what < 45 && w.random.IntN(400) > 0:
		w.heartbeats[name] = w.now
		w.fleet.Renewed(name, w.now, w.now)
		w.syncAffected()
	}
	w.check()
}

func (w *fixture) zone() string { return fmt.Sprint("zone-", w.random.IntN(2)) }

func (w *fixture) sync(name string) {
	n := w.nodes[name]
	v := w.fleet.Decide(n, w.now)
	grace := w.fleet.GracePeriod
	if condition(n, corev1.NodeReady) == nil {
		grace = w.fleet.StartupGracePeriod
	}
	if silent := w.now.Sub(w.heartbeats[name]); v.Unreachable && silent < grace || !v.Unreachable && silent >= grace && !allUnknown(n) {
		w.t.Fatalf("seed %d: %s is unreachable: %v, %s after its last heartbeat", w.seed, name, v.Unreachable, silent)
	}
	if v.Unreachable {
		for _, posted := range Posted() {
			if c := condition(n, posted); c != nil {
				c.Status = corev1.ConditionUnknown
			} else {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: posted, Status: corev1.ConditionUnknown})
			}
		}
		v = w.fleet.Decide(n, w.now)
	}
	if v.Taint != "" && !hasEvictionTaint(n) {
		z := w.fleet.nodes[name].zone
		if since := w.now.Sub(w.tainted[z]); since < 10*time.Second {
			w.t.Fatalf("seed %d: two nodes of %s are tainted within %s", w.seed, z.name, since)
		}
		w.tainted[z] = w.now
		if w.fleet.outage {
			w.t.Fatalf("seed %d: %s is tainted in an outage", w.seed, name)
		}
	}
	n.Spec.Taints = nil
	if v.Taint != "" {
		n.Spec.Taints = []corev1.Taint{{Key: v.Taint, Effect: corev1.TaintEffectNoExecute}}
	}
	w.fleet.Observe(n, w.now)
	if delete(w.requeued, name); !v.Requeue.IsZero() {
		w.requeued[name] = v.Requeue
	}
	w.syncAffected()
}

func (w *fixture) syncAffected() {
	for _, name := range w.fleet.Affected() {
		if w.nodes[name] != nil {
			w.sync(name)
		}
	}
}

// check compares the counts with the nodes.
func (w *fixture) check() {
	type count struct{ members, notReady int }
	want := map[string]count{}
	for _, n := range w.nodes {
		c := want[n.Labels[corev1.LabelTopologyZone]]
		c.members++
		if ready := condition(n, corev1.NodeReady); ready == nil || ready.Status != corev1.ConditionTrue {
			c.notReady++
		}
		want[n.Labels[corev1.LabelTopologyZone]] = c
	}
	for _, z := range w.fleet.zones {
		name := z.name[len(":\x00:"):]
		if got := (count{z.members, z.notReady}); got != want[name] || z.counted != z.members {
			w.t.Fatalf("seed %d: %s has %v, want %v", w.seed, name, got, want[name])
		}
		for _, waiting := range z.waiting {
			if m := w.fleet.nodes[waiting]; m == nil || m.zone != z {
				w.t.Fatalf("seed %d: %s waits in %s, but is not there", w.seed, waiting, name)
			}
		}
	}
}

// BenchmarkRenewed is what a renewal of a lease costs, of which 1,000 nodes make
// 100 per second.
func BenchmarkRenewed(b *testing.B) {
	f := New(Config{GracePeriod: 50 * time.Second}, start)
	for i := range 1000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		setReady(n, "True", start)
		f.Decide(n, start)
	}
	now := start
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		f.Renewed("n500", now, now)
	}
}
