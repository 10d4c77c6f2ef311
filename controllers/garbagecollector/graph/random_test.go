package graph

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	long = flag.Duration("long", 2*time.Second, "how long TestOnlyGarbageIsCollected runs; a million steps take some seconds")
	seed = flag.Uint64("seed", 0, "the only seed of TestOnlyGarbageIsCollected; 0 is a random one, and then the next")
)

// TestOnlyGarbageIsCollected simulates API servers with random actions of users,
// watches that lag and end unexpectedly, lists that are older than the graph, kinds
// that are added and removed, requests that fail or whose responses are late, and
// crashes. No object with a valid owner is ever deleted; in the end all garbage is
// deleted, and the graph equals the API server.
func TestOnlyGarbageIsCollected(t *testing.T) {
	first, end := *seed, time.Now().Add(*long)
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	steps := 0
	for s := first; s == first || *seed == 0 && time.Now().Before(end); s++ {
		p := newSimulation(s)
		for range 300 {
			steps++
			if err := p.step(); err != nil {
				t.Fatalf("-seed=%d: %v", s, err)
			}
		}
		n, err := p.finish()
		if err != nil {
			t.Fatalf("-seed=%d: %v", s, err)
		}
		steps += n
	}
	t.Logf("%d steps", steps)
}

// trace logs the steps of a simulation.
func trace(format string, args ...any) {
	if *seed != 0 {
		fmt.Printf(format+"\n", args...)
	}
}

// simulation is a graph and a simulated collector, with steps in random order.
type simulation struct {
	*apiServer
	g        *Graph
	ready    []Subject
	later    []Subject
	inFlight []*request
	monitors map[schema.GroupKind]*watching
}

type request struct {
	subject  Subject
	action   Action
	result   Result
	executed bool
	// lost requests were sent by a collector that has crashed.
	lost bool
}

// watching is the state of a monitor.
type watching struct {
	served, listed bool
	revision       uint64
}

func newSimulation(seed uint64) *simulation {
	p := &simulation{apiServer: newAPIServer(rand.New(rand.NewPCG(seed, seed))), monitors: map[schema.GroupKind]*watching{}}
	p.restart()
	return p
}

// restart starts with an empty graph, which does not know the orphaned dependents.
func (p *simulation) restart() {
	p.g, p.ready, p.later, p.protected = New(), nil, nil, map[types.UID]*thing{}
	for _, r := range p.inFlight {
		r.lost = true
	}
	for _, kind := range watchedKinds {
		p.monitors[kind] = &watching{}
		if !p.unavailable[kind] {
			p.serve(kind)
		}
	}
	p.g.Serve(unwatched, true, false)
}

func (p *simulation) serve(kind schema.GroupKind) {
	p.monitors[kind].served = true
	p.g.Serve(kind, namespacedKind(kind), true)
}

func (p *simulation) step() error {
	switch n := p.rand.IntN(100); {
	case n < 30:
		p.user()
	case n < 60:
		p.watch(watchedKinds[p.rand.IntN(len(watchedKinds))])
	case n < 75:
		return p.start()
	case n < 97:
		return p.progress(p.rand.IntN(6) == 0)
	case n < 98:
		return p.disturb()
	case n < 99:
		p.ready, p.later = append(p.ready, p.later...), nil
	}
	return nil
}

// user does a random request of a user.
func (p *simulation) user() {
	if p.rand.IntN(3) == 0 || len(p.objects) < 4 {
		kinds := append([]schema.GroupKind{unwatched}, watchedKinds...)
		kind := kinds[p.rand.IntN(len(kinds))]
		if p.unavailable[kind] {
			return
		}
		var finalizers []string
		switch p.rand.IntN(20) {
		case 0, 1:
			finalizers = []string{"x"}
		case 2:
			finalizers = []string{metav1.FinalizerOrphanDependents}
		case 3:
			finalizers = []string{"x", metav1.FinalizerDeleteDependents}
		}
		p.create(kind, p.references(), finalizers)
		return
	}
	o := p.any()
	if p.unavailable[o.kind] {
		return
	}
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	switch p.rand.IntN(6) {
	case 0, 1:
		p.delete(o, policies[p.rand.IntN(3)])
	case 2:
		p.write(o, func(o *thing) { o.Owners = p.references() })
	case 3:
		p.write(o, func(o *thing) {
			for i := range o.Owners {
				o.Owners[i].BlockOwnerDeletion = new(p.rand.IntN(2) == 0)
			}
		})
	case 4:
		p.write(o, func(o *thing) {
			o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == "x" })
		})
	case 5:
		p.write(o, func(*thing) {})
	}
}

// watch delivers the next event of a kind, or a list.
func (p *simulation) watch(kind schema.GroupKind) {
	m := p.monitors[kind]
	switch {
	case !m.served:
		return
	case p.unavailable[kind]:
		p.g.Failing(kind)
	case !m.listed:
		p.list(kind, p.revision)
	default:
		for _, c := range p.history[kind] {
			if c.revision <= m.revision {
				continue
			}
			m.revision = c.revision
			trace("seen: gone %v %s %+v", c.gone, kind, c.object.Object)
			if c.gone {
				p.g.Deleted(c.object.UID)
			} else {
				p.g.Observe(kind, c.object.copy().Object)
			}
			break
		}
	}
	p.drain()
}

func (p *simulation) list(kind schema.GroupKind, revision uint64) {
	trace("list: %s at %d of %d", kind, revision, p.revision)
	p.g.Replace(kind, p.at(kind, revision))
	p.monitors[kind].listed, p.monitors[kind].revision = true, revision
}

func (p *simulation) drain() {
	p.g.Notices()
	p.enqueue(p.g.Ready()...)
}

func (p *simulation) enqueue(subjects ...Subject) {
	for _, s := range subjects {
		if !slices.Contains(p.ready, s) {
			p.ready = append(p.ready, s)
		}
	}
}

// start starts the action of a ready subject.
func (p *simulation) start() error {
	if len(p.ready) == 0 {
		return nil
	}
	i := p.rand.IntN(len(p.ready))
	s := p.ready[i]
	if slices.ContainsFunc(p.inFlight, func(r *request) bool { return r.subject == s && !r.lost }) {
		return nil
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	a := p.g.Next(s)
	p.drain()
	if a.Verb == Nothing {
		return nil
	}
	trace("wanted: %s", a)
	p.inFlight = append(p.inFlight, &request{subject: s, action: a})
	if a.Finalizer == metav1.FinalizerDeleteDependents {
		return p.mayBeReleased(a)
	}
	return nil
}

// mayBeReleased returns why the finalizer must not be removed from an owner: a
// dependent in the graph blocks its deletion.
func (p *simulation) mayBeReleased(a Action) error {
	for uid, o := range p.objects {
		n := p.g.nodes[uid]
		if n == nil || n.version != o.Version {
			continue
		}
		for _, ref := range o.Owners {
			if ref.UID == a.Object.UID && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion && p.truth(o, ref) == waits {
				return fmt.Errorf("%s: %s %s blocks it", a, o.kind, uid)
			}
		}
	}
	return nil
}

// progress executes a request, or delivers its response.
func (p *simulation) progress(fail bool) error {
	if len(p.inFlight) == 0 {
		return nil
	}
	i := p.rand.IntN(len(p.inFlight))
	r := p.inFlight[i]
	if !r.executed {
		r.executed = true
		if fail {
			return nil // the request has not arrived
		}
		var err error
		r.result, err = p.perform(r.action)
		if r.lost {
			delete(p.protected, r.action.Object.UID)
		}
		trace("done: %s: %+v", r.action, r.result)
		return err
	}
	if fail {
		r.result = Result{} // the response has not arrived
	}
	p.inFlight = slices.Delete(p.inFlight, i, i+1)
	if r.lost {
		return nil
	}
	trace("answered: %s: %d", r.action, r.result.Outcome)
	switch p.g.Complete(r.subject, r.action, r.result) {
	case RequeueNow:
		p.enqueue(r.subject)
	case RequeueWithBackoff:
		p.later = append(p.later, r.subject)
	}
	p.drain()
	return nil
}

// disturb does a random rare event.
func (p *simulation) disturb() error {
	kind := watchedKinds[p.rand.IntN(len(watchedKinds))]
	m := p.monitors[kind]
	what := p.rand.IntN(8)
	trace("disturb %d: %s", what, kind)
	switch what {
	case 0, 1: // a watch ends unexpectedly, and a list is old
		if m.listed && !p.unavailable[kind] {
			p.g.InvalidateLookups()
			p.list(kind, p.revision-min(p.revision, uint64(p.rand.IntN(60))))
		}
	case 2: // an extension server is unavailable
		p.unavailable[kind] = true
	case 3:
		p.unavailable[kind] = false
		if !m.served {
			p.serve(kind)
		}
	case 4: // its discovery fails, too
		if p.unavailable[kind] && m.served {
			*m = watching{}
			p.g.RemoveKind(kind)
		}
	case 5: // a custom kind is removed, after its objects
		for _, o := range p.objects {
			if o.kind == custom && !p.unavailable[custom] {
				p.write(o, func(o *thing) { o.Deleting, o.Finalizers = true, nil })
			}
		}
		p.unavailable[custom] = true
	case 6:
		if p.rand.IntN(4) == 0 {
			p.restart()
		}
	case 7:
		if p.rand.IntN(4) == 0 {
			return p.restore()
		}
	}
	p.drain()
	return nil
}

// restore restores the API server to an earlier state. The watches end and all requests
// fail. The collector removes the objects of a kind when it lists the kind again,
// and uses them until then.
func (p *simulation) restore() error {
	then := p.revision - min(p.revision, uint64(p.rand.IntN(60)))
	p.objects = map[types.UID]*thing{}
	awaiting := map[types.UID]bool{}
	for kind := range p.history {
		for _, o := range p.at(kind, then) {
			p.objects[o.UID] = (&thing{kind, o}).copy()
			if o.Waiting() {
				awaiting[o.UID] = true
			}
		}
		p.history[kind] = slices.DeleteFunc(p.history[kind], func(c change) bool { return c.revision > then })
	}
	p.revision, p.awaiting = then, awaiting
	for _, r := range p.inFlight {
		r.executed = true
	}
	p.g.InvalidateLookups()
	p.drain()
	for _, i := range p.rand.Perm(len(watchedKinds)) {
		for range 10 {
			if err := errors.Join(p.start(), p.progress(false)); err != nil {
				return err
			}
		}
		kind := watchedKinds[i]
		p.g.RemoveKind(kind)
		p.monitors[kind].listed = false
		if p.monitors[kind].served {
			p.serve(kind)
		}
		if p.monitors[kind].served && !p.unavailable[kind] {
			p.list(kind, p.revision)
		}
		p.drain()
	}
	return nil
}

// finish runs until nothing changes. The error says what is wrong then.
func (p *simulation) finish() (steps int, err error) {
	for kind := range p.unavailable {
		p.unavailable[kind] = false
	}
	for _, kind := range watchedKinds {
		if !p.monitors[kind].served {
			p.serve(kind)
		}
	}
	for range 4 {
		for {
			before := p.revision
			for _, o := range p.objects {
				if slices.Contains(o.Finalizers, "x") {
					p.write(o, func(o *thing) {
						o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == "x" })
					})
				}
			}
			for len(p.ready)+len(p.inFlight) > 0 {
				if steps++; steps > 100_000 {
					return steps, fmt.Errorf("it does not become idle: %d ready, %d in flight", len(p.ready), len(p.inFlight))
				}
				if err := errors.Join(p.start(), p.progress(false)); err != nil {
					return steps, err
				}
			}
			for _, kind := range watchedKinds {
				for m := p.monitors[kind]; !m.listed || m.revision < p.last(kind); {
					steps++
					p.watch(kind)
				}
			}
			if p.revision == before && len(p.ready) == 0 {
				break
			}
		}
		p.ready, p.later = p.later, nil
	}
	if err := p.leftovers(); err != nil {
		return steps, err
	}
	return steps, p.g.check(p.apiServer)
}

// last is the revision of the last change to a kind.
func (p *simulation) last(kind schema.GroupKind) uint64 {
	if h := p.history[kind]; len(h) > 0 {
		return h[len(h)-1].revision
	}
	return 0
}
