package graph

import (
	"cmp"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is what the graph needs to know of an object.
type Object struct {
	Namespace, Name string
	UID             types.UID
	// Version is the resource version. An object is never newer than one with
	// the same UID and a higher version.
	Version    uint64
	Owners     []metav1.OwnerReference
	Finalizers []string
	// Deleting tells that the object has a deletion timestamp.
	Deleting bool
}

// Waiting tells whether the object is being deleted in the foreground.
func (o Object) Waiting() bool {
	return o.Deleting && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// Graph knows the objects of all watched kinds and their owners. It is used by
// one goroutine at a time. An object without dependents and with one owner
// takes some 250 bytes, name and UID included.
type Graph struct {
	nodes map[types.UID]*node
	kinds map[schema.GroupKind]*service

	// epoch counts the doubts. What was looked up in an earlier one is not
	// known any more.
	epoch uint64
	// parked are nodes whose decision waits for a kind to be served or listed.
	parked map[*node]struct{}
	// orphaned are the last owners whose dependents were orphaned.
	orphaned recent
	// lookups counts the lookups that Next has given out.
	lookups uint64
	rules   []rule

	ready   []Subject
	notices []Notice
}

// service is how a kind is served.
type service struct {
	namespaced bool
	// awaited kinds are watched, and neither listed nor found to be failing.
	awaited bool
}

// New is an empty graph that knows of no kind.
func New() *Graph {
	return &Graph{
		nodes:  map[types.UID]*node{},
		kinds:  map[schema.GroupKind]*service{},
		parked: map[*node]struct{}{},
		rules:  rules(),
	}
}

// Len is the number of objects, absent owners included.
func (g *Graph) Len() int { return len(g.nodes) }

// Serve tells that objects of a kind can be looked up. If they are watched,
// Replace or Failing will follow.
func (g *Graph) Serve(kind schema.GroupKind, namespaced, watched bool) {
	g.kinds[kind] = &service{namespaced: namespaced, awaited: watched}
	g.unpark()
}

// Failing tells that a kind cannot be listed now. It is not waited for.
func (g *Graph) Failing(kind schema.GroupKind) { g.found(kind) }

// Vanish tells that a kind is not served any more. Nothing is known of its
// objects then; what they own is left alone until the kind is served again.
func (g *Graph) Vanish(kind schema.GroupKind) {
	delete(g.kinds, kind)
	g.loseAll(kind, nil)
	g.unpark()
}

// Replace tells what a list of all objects of a kind has found.
func (g *Graph) Replace(kind schema.GroupKind, objects []Object) {
	listed := make(map[types.UID]struct{}, len(objects))
	for _, o := range objects {
		listed[o.UID] = struct{}{}
	}
	g.loseAll(kind, listed)
	for _, o := range objects {
		g.Observe(kind, o)
	}
	g.found(kind)
}

// found ends the wait for a kind.
func (g *Graph) found(kind schema.GroupKind) {
	if s := g.kinds[kind]; s != nil && s.awaited {
		s.awaited = false
		g.unpark()
	}
}

// loseAll loses the objects of a kind, except some.
func (g *Graph) loseAll(kind schema.GroupKind, except map[types.UID]struct{}) {
	var lost []*node
	for uid, n := range g.nodes {
		if _, ok := except[uid]; !ok && n.observed && n.place.Value().kind == kind {
			lost = append(lost, n)
		}
	}
	slices.SortFunc(lost, byUID)
	for _, n := range lost {
		g.lose(n, false)
	}
}

// Observe tells that a watch has seen an object. What is older than what the
// graph knows is ignored, and so is what is of a kind that is not served: a
// watch may end a little late.
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

// Gone tells that a watch has seen an object go.
func (g *Graph) Gone(uid types.UID) {
	if n, ok := g.nodes[uid]; ok && n.observed {
		g.lose(n, true)
	}
}

// Doubt tells that watches broke: the API server may have been restored to an
// earlier state. What was looked up so far counts for nothing.
func (g *Graph) Doubt() { g.epoch++ }

// Ready are the subjects for which there may be something to do, since it was
// called last. A subject may be among them several times.
func (g *Graph) Ready() []Subject {
	ready := g.ready
	g.ready = nil
	return ready
}

// Notices are what users are to be told, since it was called last.
func (g *Graph) Notices() []Notice {
	notices := g.notices
	g.notices = nil
	return notices
}

// update takes over the state of an object.
func (g *Graph) update(n *node, o Object, appeared bool) {
	if o.Version > n.version {
		n.deleted, n.stale = false, false
	}
	n.version = o.Version
	before := n.fate()
	n.deleting = o.Deleting
	n.foreground = indexOf(o.Finalizers, metav1.FinalizerDeleteDependents)
	n.orphan = indexOf(o.Finalizers, metav1.FinalizerOrphanDependents)
	if !n.ownedBy(o.Owners) {
		g.relink(n, o.Owners)
	}
	if n.fate() != before || appeared {
		n.forget()
		g.touchDependents(n)
	}
	g.touch(n)
}

// lose forgets what was observed of an object. If others refer to it, it
// remains as an owner that is absent, if the API server has said so, or else
// must be looked up.
func (g *Graph) lose(n *node, gone bool) {
	owners, at := n.owners, n.place.Value()
	g.unlink(n)
	*n = node{uid: n.uid, name: n.name, place: n.place, foreground: none, orphan: none, family: n.family}
	delete(g.parked, n)
	n.forget()
	if gone && n.family != nil {
		c := n.claim(coordinates{at.kind, n.name}, at.namespace)
		c.answer, c.epoch = absent, g.epoch
	}
	for _, r := range owners {
		g.settle(r.owner)
	}
	g.settle(n)
	g.touchDependents(n)
}

// settle looks at a node that may have lost a dependent.
func (g *Graph) settle(n *node) {
	switch {
	case !n.observed && n.family == nil:
		delete(g.nodes, n.uid)
	case n.deleting:
		g.touch(n)
	}
}

// touch makes a node ready if there is something to do for it.
func (g *Graph) touch(n *node) {
	if g.decide(n).Verb != Nothing {
		g.ready = append(g.ready, subject(n))
	}
}

func (g *Graph) touchDependents(n *node) {
	if n.family == nil {
		return
	}
	for _, d := range n.family.dependents {
		g.touch(d.node)
	}
}

// park lets a node wait until a kind is served or listed.
func (g *Graph) park(n *node) { g.parked[n] = struct{}{} }

func (g *Graph) unpark() {
	if len(g.parked) == 0 {
		return
	}
	waited := make([]*node, 0, len(g.parked))
	for n := range g.parked {
		waited = append(waited, n)
	}
	slices.SortFunc(waited, byUID)
	clear(g.parked)
	for _, n := range waited {
		g.touch(n)
	}
}

// complete tells whether all kinds have been listed, as far as they can be.
func (g *Graph) complete() bool {
	for _, s := range g.kinds {
		if s.awaited {
			return false
		}
	}
	return true
}

func byUID(a, b *node) int { return cmp.Compare(a.uid, b.uid) }

// recent remembers the last UIDs that were added to it.
type recent struct {
	has   map[types.UID]struct{}
	order []types.UID
	next  int
}

// remembered is how many UIDs are remembered.
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
