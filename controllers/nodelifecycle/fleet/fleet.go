// Package fleet decides whether a node is unreachable, whether its pods are
// evicted, and when it is synced next.
//
// A Fleet is a state machine without client, clock or goroutine. Its inputs are
// what is observed of nodes (Observe, Renewed, Gone); Decide returns the verdict
// on one node. Every call has the time as an argument. The scripts in testdata
// document the rules.
//
// A heartbeat of a node is a renewal of its lease or a posted status. It counts
// from its arrival here, so that clocks need not agree. A node without heartbeat
// for its grace period is unreachable: its conditions become Unknown.
//
// Evictions from nodes that are unreachable or not ready, by NoExecute taints, are
// rate limited by zone. If many nodes of a zone are not ready, a network failure
// is more likely, and the rate is lower. If no node of any zone is ready, or all
// may be about to become unreachable, nothing is evicted.
package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"
)

// Config has the grace periods and the eviction rates.
type Config struct {
	// GracePeriod is how long a node may have no heartbeat. StartupGracePeriod is
	// the same for a node that has never posted the condition Ready.
	GracePeriod, StartupGracePeriod time.Duration
	// EvictionRate is how many nodes of a zone, per second, may get a NoExecute
	// taint; zero is none. In a zone that is partially disrupted the rate is
	// SecondaryEvictionRate, or zero unless it has more than LargeZone nodes.
	EvictionRate, SecondaryEvictionRate float64
	LargeZone                           int
	// UnhealthyZone is the fraction of nodes not ready, if they are more than
	// two, from which on a zone is partially disrupted.
	UnhealthyZone float64
}

// Fleet is the state of all nodes. It is not safe for concurrent use.
type Fleet struct {
	Config
	nodes map[string]*node
	zones map[string]*zone
	// changed is true if the zones' states have to be determined again.
	changed bool
	// outage is true if no node of any zone is ready: nothing is evicted then, and
	// until recovered after the outage.
	outage    bool
	recovered time.Time
	// lastHeartbeat is the time of the last heartbeat of any node.
	lastHeartbeat time.Time
	// affected are the nodes to sync because of other nodes.
	affected []string
}

// New returns a fleet without nodes that begins now.
func New(c Config, now time.Time) *Fleet {
	return &Fleet{Config: c, nodes: map[string]*node{}, zones: map[string]*zone{}, lastHeartbeat: now}
}

// node is the state of a node.
type node struct {
	name    string
	uid     types.UID
	zone    *zone
	counted bool // whether it counts in the health of the zone
	// ready is the status of the condition Ready, empty if there is none, and
	// heartbeat its time.
	ready     corev1.ConditionStatus
	heartbeat metav1.Time
	renewed   time.Time // the time in the lease
	alive     time.Time // the arrival of the last heartbeat
	decided   bool      // whether there was a verdict on it
	// tainted is true if the node has a NoExecute taint for its health, and granted
	// if it may get one within the rate of its zone.
	tainted, granted bool
}

// Observe records the state of a node. Most updates of nodes are only heartbeats,
// for which this suffices. Decide calls it, too.
func (f *Fleet) Observe(n *corev1.Node, now time.Time) {
	m := f.nodes[n.Name]
	if m != nil && m.uid != n.UID {
		f.Gone(n.Name)
		m = nil
	}
	var status corev1.ConditionStatus
	var heartbeat metav1.Time
	if c := condition(n, corev1.NodeReady); c != nil {
		status, heartbeat = c.Status, c.LastHeartbeatTime
	}
	switch {
	case m == nil:
		m = &node{name: n.Name, uid: n.UID}
		f.nodes[n.Name] = m
		f.heartbeat(m, now)
	case m.ready == status && m.heartbeat.Equal(&heartbeat), status == corev1.ConditionUnknown:
		// The node has not posted this: its agent never posts Unknown.
	default:
		f.heartbeat(m, now)
	}
	m.heartbeat, m.tainted = heartbeat, hasEvictionTaint(n)
	if m.tainted {
		m.granted = false
	}
	f.place(m, topology.GetZoneKey(n), !excluded(n), status)
}

// Renewed records that a node has renewed its lease; renewal is the time in the
// lease, by the node's clock.
func (f *Fleet) Renewed(name string, renewal, now time.Time) {
	m := f.nodes[name]
	if m == nil || !renewal.After(m.renewed) {
		return
	}
	m.renewed = renewal
	f.heartbeat(m, now)
}

// heartbeat records a heartbeat. The first one after all nodes were silent makes
// the nodes affected whose evictions have waited for it.
func (f *Fleet) heartbeat(m *node, now time.Time) {
	m.alive = now
	if f.silent(now) {
		for _, z := range f.zones {
			f.affected = append(f.affected, z.waiting...)
		}
	}
	f.lastHeartbeat = now
}

// silent reports whether no node has had a heartbeat for half of the grace period,
// so that all may be about to become unreachable.
func (f *Fleet) silent(now time.Time) bool { return now.Sub(f.lastHeartbeat) > f.GracePeriod/2 }

// Gone records that a node was deleted. It returns the UID that the node had, or ""
// if it was not known.
func (f *Fleet) Gone(name string) types.UID {
	m := f.nodes[name]
	if m == nil {
		return ""
	}
	m.zone.remove(m)
	m.zone.forget(name)
	f.changed = true
	delete(f.nodes, name)
	return m.uid
}

// Affected returns, once, the nodes to sync because other nodes have changed.
func (f *Fleet) Affected() []string {
	affected := f.affected
	f.affected = nil
	slices.Sort(affected)
	return slices.Compact(affected)
}

// Verdict is the decision on a node.
type Verdict struct {
	// New is true for the first verdict on the node.
	New bool
	// Unreachable is true if the node's grace period is over and its conditions
	// are not Unknown yet.
	Unreachable bool
	// Taint is the key of the only NoExecute taint that the node has for its
	// health; empty is none.
	Taint string
	// Requeue is when to sync the node next if there is no event; zero is never.
	Requeue time.Time
}

// Decide returns the verdict on a node.
func (f *Fleet) Decide(n *corev1.Node, now time.Time) Verdict {
	f.Observe(n, now)
	f.updateZones(now)
	m := f.nodes[n.Name]
	v := Verdict{New: !m.decided}
	m.decided = true
	grace := f.GracePeriod
	if m.ready == "" {
		grace = f.StartupGracePeriod
	}
	if end := m.alive.Add(grace); now.Before(end) {
		v.Requeue = end
	} else {
		v.Unreachable = !allUnknown(n)
	}
	var requeue time.Time
	if v.Taint, requeue = f.taint(m, now); v.Requeue.IsZero() || !requeue.IsZero() && requeue.Before(v.Requeue) {
		v.Requeue = requeue
	}
	return v
}

// taint returns the key of the NoExecute taint that a node has now, and the time to
// sync it again if it may get one later.
func (f *Fleet) taint(m *node, now time.Time) (key string, requeue time.Time) {
	key = evictionTaint(m.ready)
	if key == "" || f.outage {
		m.granted = false
		m.zone.forget(m.name)
		return "", time.Time{}
	}
	if m.tainted || m.granted {
		m.zone.forget(m.name)
		return key, time.Time{}
	}
	position := m.zone.wait(m.name)
	// A node that posts that it is not ready was not cut off.
	if m.ready == corev1.ConditionUnknown && now.Before(f.recovered) {
		return "", f.recovered
	}
	if f.silent(now) {
		return "", now.Add(f.GracePeriod / 2)
	}
	turn, ok := m.zone.turn(position, now)
	if !ok || turn.After(now) {
		return "", turn
	}
	m.zone.last, m.granted = now, true
	m.zone.forget(m.name)
	return key, time.Time{}
}
