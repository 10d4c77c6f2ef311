package garbagecollector

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// monitors runs a monitor for each kind that can be collected. They are changed
// by one goroutine.
type monitors struct {
	collector *collector
	discovery *discovery.Discovery
	clock     clock.WithTicker
	ignored   map[schema.GroupKind]bool

	changed chan struct{}
	served  map[schema.GroupKind]*service
	ended   sync.WaitGroup
}

// service is a kind that is served.
type service struct {
	discovery.Resource
	// watched kinds have a monitor.
	watched bool
	stop    context.CancelFunc
	// missing is since when it is not found any more; zero if it is.
	missing time.Time
}

// How often the monitors look what is served. Custom resources and extension
// servers are watched; but the latter may change what they serve silently.
const (
	regularly     = 5 * time.Minute
	whileFailing  = 30 * time.Second
	whileStarting = time.Second
	// vanishesAfter is how long a kind must be missing. Until then, its watch
	// may still have to tell what has become of its objects.
	vanishesAfter = time.Second
)

// afterChange are the pauses before each of the looks at what is served after
// something has changed: discovery follows a little later.
var afterChange = [...]time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}

func newMonitors(c *collector, d *discovery.Discovery, clk clock.WithTicker, ignored map[schema.GroupKind]bool) *monitors {
	return &monitors{
		collector: c, discovery: d, clock: clk, ignored: ignored,
		changed: make(chan struct{}, 1), served: map[schema.GroupKind]*service{},
	}
}

// rediscover makes run look soon at what is served.
func (m *monitors) rediscover() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// run keeps the monitors in line with what is served until ctx is done and they
// have ended.
func (m *monitors) run(ctx context.Context) {
	defer m.ended.Wait()
	looks := len(afterChange) // how many looks after a change have been had
	for {
		pause := m.look(ctx)
		if looks < len(afterChange) {
			pause = min(pause, afterChange[looks])
			looks++
		}
		select {
		case <-ctx.Done():
			return
		case <-m.clock.After(pause):
		case <-m.changed:
			looks = 1
			select {
			case <-ctx.Done():
				return
			case <-m.clock.After(afterChange[0]):
			}
		}
	}
}

// look compares the monitors with what is served. It returns when to look again.
func (m *monitors) look(ctx context.Context) time.Duration {
	log := klog.FromContext(ctx)
	now := m.clock.Now()
	found, err := m.discovery.Since(ctx, now)
	if err != nil {
		if ctx.Err() == nil {
			log.V(2).Info("The garbage collector cannot tell what is served", "reason", err.Error())
		}
		if len(m.served) == 0 {
			return whileStarting
		}
		return whileFailing
	}
	pause := regularly
	if len(found.Failed) > 0 {
		pause = whileFailing
	}
	wanted := m.wanted(found)
	for kind, r := range wanted {
		m.serve(ctx, kind, r)
	}
	for kind, s := range m.served {
		switch _, ok := wanted[kind]; {
		case ok:
			s.missing = time.Time{}
		case s.missing.IsZero():
			s.missing = now
			pause = min(pause, vanishesAfter)
		case now.Sub(s.missing) >= vanishesAfter:
			log.V(2).Info("The kind is not served any more", "kind", kind)
			m.vanish(kind)
		default:
			pause = min(pause, vanishesAfter)
		}
	}
	return pause
}

// wanted are the resources by which the kinds are known. Those of groups that
// cannot be discovered now are as they were. A kind with several resources is
// left out: nobody can tell which of them an owner reference means.
func (m *monitors) wanted(found discovery.Snapshot) map[schema.GroupKind]discovery.Resource {
	resources := append([]discovery.Resource(nil), found.Resources...)
	for _, failure := range found.Failed {
		resources = append(resources, failure.Last...)
	}
	wanted := map[schema.GroupKind]discovery.Resource{}
	several := map[schema.GroupKind]bool{}
	for _, r := range resources {
		kind := kindOf(r)
		if strings.Contains(r.Resource, "/") || !r.Can("get") {
			continue
		}
		switch other, ok := wanted[kind]; {
		case !ok, m.collectable(r) && !m.collectable(other):
			wanted[kind] = r
			several[kind] = false
		case m.collectable(r) == m.collectable(other) && r.GroupResource() != other.GroupResource():
			several[kind] = true
		}
	}
	for kind, is := range several {
		if is {
			delete(wanted, kind)
		}
	}
	return wanted
}

func kindOf(r discovery.Resource) schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// collectable resources are watched.
func (m *monitors) collectable(r discovery.Resource) bool {
	return r.Can("list", "watch", "delete") && !m.ignored[kindOf(r)]
}

// serve makes sure that a kind is known, and watched if it can be.
func (m *monitors) serve(ctx context.Context, kind schema.GroupKind, r discovery.Resource) {
	watched := m.collectable(r)
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
	m.served[kind] = &service{Resource: r, watched: watched, stop: stop}
	m.collector.change(func(g *graph.Graph) {
		m.collector.resources[kind] = r
		g.Serve(kind, r.Namespaced, watched)
	})
	if !watched {
		return
	}
	monitor := &monitor{
		collector: m.collector, resource: r, kind: kind, objects: m.collector.metadata.Resource(r.GroupVersionResource),
		clock: m.clock, rediscover: m.rediscover,
	}
	m.ended.Go(func() { monitor.run(ctx) })
}

// vanish forgets a kind.
func (m *monitors) vanish(kind schema.GroupKind) {
	m.served[kind].stop()
	delete(m.served, kind)
	m.collector.change(func(g *graph.Graph) {
		delete(m.collector.resources, kind)
		g.Vanish(kind)
	})
}
