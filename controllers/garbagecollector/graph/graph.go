package graph

import (
	"cmp"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is the part of an object that the graph needs.
type Object struct {
	Namespace, Name string
	UID             types.UID
	// Version is the resource version. Of two states with the same UID, the one with
	// the higher version is the newer one.
	Version    uint64
	Owners     []metav1.OwnerReference
	Finalizers []string
	// Deleting is set if the object has a deletion timestamp.
	Deleting bool
}

// Waiting reports whether the object is being deleted in the foreground.
func (o Object) Waiting() bool {
	return o.Deleting && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// Graph has the objects of all watched kinds and their owners. It is not safe for
// concurrent use. An object without dependents and with one owner takes some 250
// bytes, name and UID included.
type Graph struct {
	nodes map[types.UID]*node
	kinds map[schema.GroupKind]*servedKind

	// epoch counts the calls of InvalidateLookups. The results of lookups of earlier
	// epochs are not used.
	epoch uint64
	// delayed are nodes whose decision depends on a kind that is not served or listed.
	delayed map[*node]struct{}
	// orphaned are the most recent owners whose dependents were orphaned.
	orphaned recent
	// lookups counts the lookups that Next has returned.
	lookups uint64
	rules   []rule

	ready   []Subject
	notices []Notice
}

// servedKind is a kind that is served.
type servedKind struct {
	namespaced bool
	// awaited is set for a watched kind until it is listed or its list fails.
	awaited bool
}

// New returns a graph without kinds and objects.
func New() *Graph {
	return &Graph{
		nodes:   map[types.UID]*node{},
		kinds:   map[schema.GroupKind]*servedKind{},
		delayed: map[*node]struct{}{},
		rules:   rules(),
	}
}

// Len is the number of objects, absent owners included.
func (g *Graph) Len() int { return len(g.nodes) }

// Serve adds a kind whose objects can be looked up. If they are watched, Replace or
// Failing must follow.
func (g *Graph) Serve(kind schema.GroupKind, namespaced, watched bool) {
	g.kinds[kind] = &servedKind{namespaced: namespaced, awaited: watched}
	g.enqueueDelayed()
}

// Failing records that a kind cannot be listed now: decisions do not wait for it.
func (g *Graph) Failing(kind schema.GroupKind) { g.found(kind) }

// RemoveKind removes a kind that is no longer served, and its objects. Their
// dependents are kept until the kind is served again.
func (g *Graph) RemoveKind(kind schema.GroupKind) {
	delete(g.kinds, kind)
	g.removeAll(kind, nil)
	g.enqueueDelayed()
}

// Replace replaces the objects of a kind by those of a list.
func (g *Graph) Replace(kind schema.GroupKind, objects []Object) {
	listed := make(map[types.UID]struct{}, len(objects))
	for _, o := range objects {
		listed[o.UID] = struct{}{}
	}
	g.removeAll(kind, listed)
	for _, o := range objects {
		g.Observe(kind, o)
	}
	g.found(kind)
}

// found ends the wait for the first list of a kind.
func (g *Graph) found(kind schema.GroupKind) {
	if s := g.kinds[kind]; s != nil && s.awaited {
		s.awaited = false
		g.enqueueDelayed()
	}
}

// removeAll removes the objects of a kind, except some.
func (g *Graph) removeAll(kind schema.GroupKind, except map[types.UID]struct{}) {
	var lost []*node
	for uid, n := range g.nodes {
		if _, ok := except[uid]; !ok && n.observed && n.place.Value().kind == kind {
			lost = append(lost, n)
		}
	}
	slices.SortFunc(lost, byUID)
	for _, n := range lost {
		g.remove(n, false)
	}
}

// Observe adds or updates an object from a watch. It ignores a version that is older
// than the graph's, and kinds that are not served, as a watch may end a little late.
func (g *Graph) Observe(kind schema.GroupKind, o Object) {
	if g.kinds[kind] == nil {
		return
	}
	n, ok := g.nodes[o.UID]
	if !ok {
		n = &node{uid: o.UID, foreground: none, orphan: none}
		g.nodes[o.UID] = n
	}
	if n.observed && o.Version < n.version {
		return
	}
	appeared := !n.observed
	if appeared {
		g.identify(n, place{kind, o.Namespace}, o.Name)
	}
	g.update(n, o, appeared)
}

// Deleted records that a watch has delivered the deletion of an object.
func (g *Graph) Deleted(uid types.UID) {
	if n, ok := g.nodes[uid]; ok && n.observed {
		g.remove(n, true)
	}
}

// InvalidateLookups discards the results of all lookups, those in flight included.
// It is called when a watch ends unexpectedly: etcd may have been restored from a
// snapshot.
func (g *Graph) InvalidateLookups() { g.epoch++ }

// Ready returns the subjects for which there may be something to do since the last
// call. It may contain a subject several times.
func (g *Graph) Ready() []Subject {
	ready := g.ready
	g.ready = nil
	return ready
}

// Notices returns the notices since the last call.
func (g *Graph) Notices() []Notice {
	notices := g.notices
	g.notices = nil
	return notices
}

// update updates a node with the state of its object.
func (g *Graph) update(n *node, o Object, appeared bool) {
	if o.Version > n.version {
		n.deleted, n.stale = false, false
	}
	n.version = o.Version
	before := n.deletion()
	n.deleting = o.Deleting
	n.foreground = indexOf(o.Finalizers, metav1.FinalizerDeleteDependents)
	n.orphan = indexOf(o.Finalizers, metav1.FinalizerOrphanDependents)
	if !n.ownedBy(o.Owners) {
		g.relink(n, o.Owners)
	}
	if n.deletion() != before || appeared {
		n.dropLookups()
		g.enqueueDependents(n)
	}
	g.enqueue(n)
}

// remove removes an observed object. If dependents refer to it, its node remains as an
// owner that is absent (gone), or that must be looked up.
func (g *Graph) remove(n *node, gone bool) {
	owners, at := n.owners, n.place.Value()
	g.unlink(n)
	*n = node{uid: n.uid, name: n.name, place: n.place, foreground: none, orphan: none, dependents: n.dependents}
	delete(g.delayed, n)
	n.dropLookups()
	if gone && n.dependents != nil {
		l := n.lookup(coordinates{at.kind, n.name}, at.namespace)
		l.result, l.epoch = absent, g.epoch
	}
	for _, r := range owners {
		g.reevaluate(r.owner)
	}
	g.reevaluate(n)
	g.enqueueDependents(n)
}

// reevaluate enqueues or removes a node that may have lost a dependent.
func (g *Graph) reevaluate(n *node) {
	switch {
	case !n.observed && n.dependents == nil:
		delete(g.nodes, n.uid)
	case n.deleting:
		g.enqueue(n)
	}
}

// enqueue makes a node ready if it has an action.
func (g *Graph) enqueue(n *node) {
	if g.decide(n).Verb != Nothing {
		g.ready = append(g.ready, subject(n))
	}
}

func (g *Graph) enqueueDependents(n *node) {
	if n.dependents == nil {
		return
	}
	for _, d := range n.dependents.list {
		g.enqueue(d.node)
	}
}

// delay delays the decision about a node until a kind is served or listed.
func (g *Graph) delay(n *node) { g.delayed[n] = struct{}{} }

func (g *Graph) enqueueDelayed() {
	if len(g.delayed) == 0 {
		return
	}
	waited := make([]*node, 0, len(g.delayed))
	for n := range g.delayed {
		waited = append(waited, n)
	}
	slices.SortFunc(waited, byUID)
	clear(g.delayed)
	for _, n := range waited {
		g.enqueue(n)
	}
}

// complete reports whether all kinds have been listed, or failed to be.
func (g *Graph) complete() bool {
	for _, s := range g.kinds {
		if s.awaited {
			return false
		}
	}
	return true
}

func byUID(a, b *node) int { return cmp.Compare(a.uid, b.uid) }

// recent is a set of the UIDs that were last added.
type recent struct {
	has   map[types.UID]struct{}
	order []types.UID
	next  int
}

// remembered is the capacity of recent.
const remembered = 10_000

func (r *recent) add(uid types.UID) {
	if _, ok := r.has[uid]; ok {
		return
	}
	if r.has == nil {
		r.has = map[types.UID]struct{}{}
	}
	r.has[uid] = struct{}{}
	if len(r.order) < remembered {
		r.order = append(r.order, uid)
		return
	}
	delete(r.has, r.order[r.next])
	r.order[r.next] = uid
	r.next = (r.next + 1) % remembered
}

func intern(p place) unique.Handle[place] { return unique.Make(p) }
