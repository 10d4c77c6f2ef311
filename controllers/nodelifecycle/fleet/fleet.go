// Package fleet decides what the health of nodes means: whether a node is to be
// taken for dead, whether its pods are to be evicted, and when to look at it
// again.
//
// A Fleet is a state machine without client, clock or goroutine. It is told what
// is seen of nodes (Observe, Renewed, Gone) and asked about one of them at a
// time (Look); every call brings the time with it. The scripts in testdata show
// what follows from what.
//
// A node is alive as long as it gives signs of life: it renews its lease, or
// posts its status. The time of a sign is that of its arrival here, so that
// clocks need not agree. A node that has been silent for its grace period is
// dead: its conditions become Unknown.
//
// Evictions from nodes that are dead or not ready, by NoExecute taints, are
// paced by zone: a few dead nodes are dead nodes, many are more likely a broken
// network, and if all are dead, or about to be, then nothing is evicted at all.
package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"
)

// Config is how patient a fleet is.
type Config struct {
	// GracePeriod is how long a node may be silent. StartupGracePeriod is how long
	// it may be that has never told whether it is ready.
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

// Fleet is what is known of all nodes. It is not safe for concurrent use.
type Fleet struct {
	Config
	nodes map[string]*node
	zones map[string]*zone
	// changed tells that the zones' states may have changed since they were
	// determined.
	changed bool
	// outage tells that no node of any zone is ready: nothing is evicted. Nor is
	// it after an outage until calm.
	outage bool
	calm   time.Time
	// heard is the time of the last sign of life of any node.
	heard time.Time
	woken []string
}

// New is a fleet without nodes that begins now.
func New(c Config, now time.Time) *Fleet {
	return &Fleet{Config: c, nodes: map[string]*node{}, zones: map[string]*zone{}, heard: now}
}

// node is what is known of a node.
type node struct {
	name    string
	uid     types.UID
	zone    *zone
	counted bool // in the health of the zone
	// ready is the status of the condition Ready, empty if there is none, and
	// heartbeat its time.
	ready     corev1.ConditionStatus
	heartbeat metav1.Time
	renewed   time.Time // the time in the lease
	alive     time.Time // the last sign of life
	looked    bool
	// tainted tells that the node has a NoExecute taint for its health, and
	// granted that it may get one: it has taken its zone's turn for that.
	tainted, granted bool
}

// Observe tells what a node looks like. Most of what nodes post is no more than
// a sign of life, for which this suffices; Look does it, too.
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
		f.sign(m, now)
	case m.ready == status && m.heartbeat.Equal(&heartbeat), status == corev1.ConditionUnknown:
		// It has not posted anything: Unknown is what others say of it.
	default:
		f.sign(m, now)
	}
	m.heartbeat, m.tainted = heartbeat, hasEvictionTaint(n)
	if m.tainted {
		m.granted = false
	}
	f.place(m, topology.GetZoneKey(n), !excluded(n), status)
}

// Renewed tells when a node has renewed its lease, by its own clock.
func (f *Fleet) Renewed(name string, renewal, now time.Time) {
	m := f.nodes[name]
	if m == nil || !renewal.After(m.renewed) {
		return
	}
	m.renewed = renewal
	f.sign(m, now)
}

// sign notes a sign of life. The first one after a silence of all wakes the
// nodes whose evictions wait for it.
func (f *Fleet) sign(m *node, now time.Time) {
	m.alive = now
	if f.silent(now) {
		for _, z := range f.zones {
			f.woken = append(f.woken, z.waiting...)
		}
	}
	f.heard = now
}

// silent tells whether no node at all has been heard of for so long that all
// may be about to be found dead, one after the other.
func (f *Fleet) silent(now time.Time) bool { return now.Sub(f.heard) > f.GracePeriod/2 }

// Gone tells that a node does not exist any more. It returns the UID that it
// had, empty if it was not known.
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

// Woken returns the nodes to look at since others have changed.
func (f *Fleet) Woken() []string {
	woken := f.woken
	f.woken = nil
	slices.Sort(woken)
	return slices.Compact(woken)
}

// Verdict is what a node needs.
type Verdict struct {
	// New tells that this is the first look at the node.
	New bool
	// Dead tells that the node has been silent for too long, and that its
	// conditions do not say so yet.
	Dead bool
	// Taint is the key of the NoExecute taint that the node is to have for its
	// health, and no other; empty is none.
	Taint string
	// Again is when to look at the node next if nothing happens; zero is never.
	Again time.Time
}

// Look decides on a node.
func (f *Fleet) Look(n *corev1.Node, now time.Time) Verdict {
	f.Observe(n, now)
	f.settle(now)
	m := f.nodes[n.Name]
	v := Verdict{New: !m.looked}
	m.looked = true
	grace := f.GracePeriod
	if m.ready == "" {
		grace = f.StartupGracePeriod
	}
	if end := m.alive.Add(grace); now.Before(end) {
		v.Again = end
	} else {
		v.Dead = !allUnknown(n)
	}
	var again time.Time
	if v.Taint, again = f.taint(m, now); v.Again.IsZero() || !again.IsZero() && again.Before(v.Again) {
		v.Again = again
	}
	return v
}

// taint is which NoExecute taint a node is to have now, and when to look again
// if it may get one later.
func (f *Fleet) taint(m *node, now time.Time) (key string, again time.Time) {
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
	if now.Before(f.calm) {
		return "", f.calm
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
