package garbagecollector

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// monitors runs a monitor for each kind that can be collected. One goroutine owns
// it.
type monitors struct {
	reconciler *reconciler
	discovery  *discovery.Discovery
	clock      clock.WithTicker
	ignored    map[schema.GroupKind]bool

	changed chan struct{}
	served  map[schema.GroupKind]*servedKind
	running sync.WaitGroup
}

// servedKind is a kind that is served.
type servedKind struct {
	discovery.Resource
	// watched kinds have a monitor.
	watched bool
	stop    context.CancelFunc
	// missingSince is when discovery first did not find it; zero if it did.
	missingSince time.Time
}

// The periods of discovery. Changes of custom resource definitions and API services
// trigger it, but an extension server may change what it serves without either.
const (
	discoveryPeriod         = 5 * time.Minute
	failingDiscoveryPeriod  = 30 * time.Second
	startingDiscoveryPeriod = time.Second
	// removalDelay is how long a kind must be missing until its objects are removed.
	// Until then, its watch may still deliver their deletions.
	removalDelay = time.Second
)

// delaysAfterChange are the delays of the discoveries after a change, as the API
// server's discovery documents follow later.
var delaysAfterChange = [...]time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}

func newMonitors(r *reconciler, d *discovery.Discovery, clk clock.WithTicker, ignored map[schema.GroupKind]bool) *monitors {
	return &monitors{
		reconciler: r, discovery: d, clock: clk, ignored: ignored,
		changed: make(chan struct{}, 1), served: map[schema.GroupKind]*servedKind{},
	}
}

// rediscover makes run discover the served resources soon.
func (m *monitors) rediscover() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// run implements manager.RunnableFunc: it starts and stops monitors as resources are
// served, until ctx is done and the monitors have ended.
func (m *monitors) run(ctx context.Context) error {
	defer m.running.Wait()
	discoveries := len(delaysAfterChange) // since the last change
	for {
		pause := m.sync(ctx)
		if discoveries < len(delaysAfterChange) {
			pause = min(pause, delaysAfterChange[discoveries])
			discoveries++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.clock.After(pause):
		case <-m.changed:
			discoveries = 1
			select {
			case <-ctx.Done():
				return nil
			case <-m.clock.After(delaysAfterChange[0]):
			}
		}
	}
}

// sync compares the monitors with the served resources. It returns the time until
// the next sync.
func (m *monitors) sync(ctx context.Context) time.Duration {
	log := klog.FromContext(ctx)
	now := m.clock.Now()
	found, err := m.discovery.Since(ctx, now)
	if err != nil {
		if ctx.Err() == nil {
			log.V(2).Info("Garbage collector failed to discover served resources, will retry", "reason", err.Error())
		}
		if len(m.served) == 0 {
			return startingDiscoveryPeriod
		}
		return failingDiscoveryPeriod
	}
	pause := discoveryPeriod
	if len(found.Failed) > 0 {
		pause = failingDiscoveryPeriod
	}
	wanted := wanted(found, m.ignored)
	for kind, r := range wanted {
		m.serve(ctx, kind, r)
	}
	for kind, s := range m.served {
		switch _, ok := wanted[kind]; {
		case ok:
			s.missingSince = time.Time{}
		case s.missingSince.IsZero():
			s.missingSince = now
			pause = min(pause, removalDelay)
		case now.Sub(s.missingSince) >= removalDelay:
			log.V(2).Info("Removing kind that is no longer served", "kind", kind)
			m.vanish(kind)
		default:
			pause = min(pause, removalDelay)
		}
	}
	return pause
}

// serve adds a kind, and starts a monitor if it can be watched.
func (m *monitors) serve(ctx context.Context, kind schema.GroupKind, r discovery.Resource) {
	watched := collectable(r, m.ignored)
	s, known := m.served[kind]
	if known && s.GroupVersionResource == r.GroupVersionResource && s.Namespaced == r.Namespaced && s.watched == watched {
		return
	}
	if known && (s.Namespaced != r.Namespaced || s.watched && !watched) {
		m.vanish(kind)
		known = false
	}
	if known {
		s.stop()
	}
	ctx, stop := context.WithCancel(ctx)
	m.served[kind] = &servedKind{Resource: r, watched: watched, stop: stop}
	m.reconciler.change(func(g *graph.Graph) {
		m.reconciler.resources[kind] = r
		g.Serve(kind, r.Namespaced, watched)
	})
	if !watched {
		return
	}
	monitor := &monitor{
		reconciler: m.reconciler, resource: r, kind: kind, objects: m.reconciler.metadata.Resource(r.GroupVersionResource),
		clock: m.clock, rediscover: m.rediscover,
	}
	m.running.Go(func() { monitor.run(ctx) })
}

// vanish removes a kind.
func (m *monitors) vanish(kind schema.GroupKind) {
	m.served[kind].stop()
	delete(m.served, kind)
	m.reconciler.change(func(g *graph.Graph) {
		delete(m.reconciler.resources, kind)
		g.RemoveKind(kind)
	})
}
