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

func TestState(t *testing.T) {
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

// TestAtRandom lets nodes live, die, move and go, and checks what must hold
// whatever happens: the counts of the zones are right; no node is dead before
// its grace period is over, and none lives much longer; no taint is given in an
// outage, and not more than one per interval and zone.
func TestAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		config := Config{GracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute, EvictionRate: 0.1, SecondaryEvictionRate: 0.05, LargeZone: 4, UnhealthyZone: 0.55}
		w := &world{t: t, random: random, seed: seed, fleet: New(config, start), now: start,
			nodes: map[string]*corev1.Node{}, signs: map[string]time.Time{}, again: map[string]time.Time{}, given: map[*zone]time.Time{}}
		for range 4000 {
			w.step()
		}
	}
}

// world is what TestAtRandom knows besides the fleet.
type world struct {
	t      *testing.T
	random *rand.Rand
	seed   uint64
	fleet  *Fleet
	now    time.Time
	nodes  map[string]*corev1.Node
	signs  map[string]time.Time // the last sign of life of each node
	again  map[string]time.Time
	given  map[*zone]time.Time // when a zone's node was tainted last
}

func (w *world) step() {
	// The time goes on, but never past the moment at which a node wants a look.
	w.now = w.now.Add(time.Duration(w.random.IntN(1000)) * time.Millisecond)
	for name, at := range w.again {
		if !at.After(w.now) {
			w.look(name)
		}
	}
	name := fmt.Sprint("n", w.random.IntN(12))
	n := w.nodes[name]
	switch what := w.random.IntN(100); {
	case n == nil:
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, w.now.UnixNano())), Labels: map[string]string{corev1.LabelTopologyZone: w.zone()}}}
		w.nodes[name], w.signs[name] = n, w.now
		if w.random.IntN(4) > 0 {
			setReady(n, "True", w.now)
		}
		w.look(name)
	case what < 2:
		w.fleet.Gone(name)
		delete(w.nodes, name)
		delete(w.again, name)
		w.wake()
	case what < 4:
		n.Labels[corev1.LabelTopologyZone] = w.zone()
		w.look(name)
	case what < 8 && w.now.After(w.signs[name]):
		setReady(n, []string{"True", "True", "False"}[w.random.IntN(3)], w.now)
		w.signs[name] = w.now
		w.look(name)
	case what < 10:
		n.Spec.Taints = nil
		w.look(name)
	case what < 45 && w.random.IntN(400) > 0:
		w.signs[name] = w.now
		w.fleet.Renewed(name, w.now, w.now)
		w.wake()
	}
	w.check()
}

func (w *world) zone() string { return fmt.Sprint("zone-", w.random.IntN(2)) }

func (w *world) look(name string) {
	n := w.nodes[name]
	v := w.fleet.Decide(n, w.now)
	grace := w.fleet.GracePeriod
	if condition(n, corev1.NodeReady) == nil {
		grace = w.fleet.StartupGracePeriod
	}
	if silent := w.now.Sub(w.signs[name]); v.Unreachable && silent < grace || !v.Unreachable && silent >= grace && !allUnknown(n) {
		w.t.Fatalf("seed %d: %s is dead: %v, after %s of silence", w.seed, name, v.Unreachable, silent)
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
		if since := w.now.Sub(w.given[z]); since < 10*time.Second {
			w.t.Fatalf("seed %d: two nodes of %s are tainted within %s", w.seed, z.name, since)
		}
		w.given[z] = w.now
		if w.fleet.outage {
			w.t.Fatalf("seed %d: %s is tainted in an outage", w.seed, name)
		}
	}
	n.Spec.Taints = nil
	if v.Taint != "" {
		n.Spec.Taints = []corev1.Taint{{Key: v.Taint, Effect: corev1.TaintEffectNoExecute}}
	}
	w.fleet.Observe(n, w.now)
	if delete(w.again, name); !v.Requeue.IsZero() {
		w.again[name] = v.Requeue
	}
	w.wake()
}

func (w *world) wake() {
	for _, name := range w.fleet.Affected() {
		if w.nodes[name] != nil {
			w.look(name)
		}
	}
}

// check compares the counts with the nodes.
func (w *world) check() {
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
