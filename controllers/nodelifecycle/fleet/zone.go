package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is the health of a zone.
type State string

// The states of a zone.
const (
	Normal            State = "Normal"
	PartialDisruption State = "PartialDisruption"
	FullDisruption    State = "FullDisruption"
)

// zone is the state of one topology zone.
type zone struct {
	name string
	// members are all nodes, counted those whose health counts, and notReady
	// those of the latter that are not ready.
	members, counted, notReady int

	state State
	// rate is how many nodes per second may be tainted; zero is none.
	rate float64
	// waiting are the nodes to be tainted, in order, and last is the time when the
	// last node was granted its taint.
	waiting []string
	last    time.Time
}

// Zone is the state of a zone: how many nodes' health counts in it, and how many of
// them are not ready.
type Zone struct {
	Name            string
	Nodes, NotReady int
}

// Zones returns the zones that nodes have been in.
func (f *Fleet) Zones() []Zone {
	var all []Zone
	for _, z := range f.zones {
		all = append(all, Zone{Name: z.name, Nodes: z.counted, NotReady: z.notReady})
	}
	return all
}

// place puts a node into its zone, with its readiness.
func (f *Fleet) place(m *node, name string, counted bool, ready corev1.ConditionStatus) {
	if m.zone != nil && m.zone.name == name && m.counted == counted && m.ready == ready {
		return
	}
	if m.zone != nil {
		m.zone.remove(m)
		if m.zone.name != name {
			m.zone.forget(m.name)
		}
	}
	z := f.zones[name]
	if z == nil {
		z = &zone{name: name}
		f.zones[name] = z
	}
	m.zone, m.counted, m.ready = z, counted, ready
	z.members++
	z.count(m, 1)
	f.changed = true
}

// remove removes a node from the members of the zone, but not from waiting.
func (z *zone) remove(m *node) {
	z.count(m, -1)
	z.members--
}

func (z *zone) count(m *node, by int) {
	if m.counted {
		z.counted += by
		if m.ready != corev1.ConditionTrue {
			z.notReady += by
		}
	}
}

// updateZones determines the states of the zones. The nodes whose evictions depend on a
// change become affected.
func (f *Fleet) updateZones(now time.Time) {
	if !f.changed {
		return
	}
	f.changed = false
	zones, disrupted := 0, 0
	for name, z := range f.zones {
		if z.members == 0 {
			delete(f.zones, name)
			continue
		}
		z.state = f.state(z.counted, z.notReady)
		if rate := f.rate(z.state, z.counted); rate != z.rate {
			z.rate = rate
			f.affected = append(f.affected, z.waiting...)
		}
		if z.counted > 0 {
			zones++
		}
		if z.state == FullDisruption {
			disrupted++
		}
	}
	outage := zones > 0 && disrupted == zones
	if outage == f.outage {
		return
	}
	f.outage = outage
	for name, m := range f.nodes {
		if !outage && m.ready == corev1.ConditionUnknown {
			// Nodes that were cut off have the grace period to send a heartbeat.
			f.recovered = now.Add(f.GracePeriod)
		}
		if m.tainted || evictionTaint(m.ready) != "" {
			f.affected = append(f.affected, name)
		}
	}
}

// state returns the state of a zone with these numbers of nodes.
func (f *Fleet) state(nodes, notReady int) State {
	switch {
	case nodes > 0 && notReady == nodes:
		return FullDisruption
	case notReady > 2 && float64(notReady)/float64(nodes) >= f.UnhealthyZone:
		return PartialDisruption
	default:
		return Normal
	}
}

// rate returns how many nodes per second of a zone may be tainted. It is lower for
// a partial disruption only: all nodes of one zone may indeed have failed.
func (f *Fleet) rate(s State, nodes int) float64 {
	switch {
	case s != PartialDisruption:
		return f.EvictionRate
	case nodes > f.LargeZone:
		return f.SecondaryEvictionRate
	default:
		return 0
	}
}

// wait appends a node to waiting, unless it is there already, and returns its
// position.
func (z *zone) wait(name string) int {
	if i := slices.Index(z.waiting, name); i >= 0 {
		return i
	}
	z.waiting = append(z.waiting, name)
	return len(z.waiting) - 1
}

// forget removes a node from waiting.
func (z *zone) forget(name string) {
	if i := slices.Index(z.waiting, name); i >= 0 {
		z.waiting = slices.Delete(z.waiting, i, i+1)
	}
}

// turn returns when the node at a position of waiting may be tainted, if those
// before it are tainted in time. ok is false in a zone whose rate is zero.
func (z *zone) turn(position int, now time.Time) (at time.Time, ok bool) {
	if z.rate <= 0 {
		return time.Time{}, false
	}
	interval := time.Duration(float64(time.Second) / z.rate)
	next := now
	if after := z.last.Add(interval); !z.last.IsZero() && after.After(now) {
		next = after
	}
	return next.Add(time.Duration(position) * interval), true
}
