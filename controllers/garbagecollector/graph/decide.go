package graph

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Next is what to do now for a subject.
func (g *Graph) Next(s Subject) Action {
	n, ok := g.nodes[s.UID]
	if !ok {
		return Action{}
	}
	if owner, is := s.claims(); is {
		return g.nextLookup(n, owner)
	}
	a := g.decide(n)
	a.epoch = g.epoch
	if a.Finalizer == metav1.FinalizerOrphanDependents {
		// From now on the owner may be gone at any moment.
		g.orphaned.add(n.uid)
	}
	return a
}

// nextLookup is the lookup of an owner, unless the answer is known by now.
func (g *Graph) nextLookup(n *node, owner Identity) Action {
	if n.family == nil {
		return Action{}
	}
	c := n.claim(coordinates{owner.Kind, owner.Name}, owner.Namespace)
	if !c.asked {
		return Action{}
	}
	if g.kinds[owner.Kind] == nil {
		c.asked = false
		for _, d := range n.family.dependents {
			g.park(d.node)
		}
		return Action{}
	}
	g.lookups++
	c.lookup = g.lookups
	return Action{Verb: LookUp, Object: owner, epoch: g.epoch, lookup: c.lookup}
}

// rule is one of the decisions about an object.
type rule func(*Graph, *node) (a Action, applies bool)

// rules are the decisions about an object in the order of precedence. The first
// that applies says what to do, be it nothing.
func rules() []rule {
	return []rule{
		notObserved,
		changedMeanwhile,
		ownersLetGoOfIt,
		orphansItsDependents,
		waitsForItsDependents,
		isOnItsWayOut,
		hasNoOwners,
		ownersHoldIt,
	}
}

// decide is what to do for an object.
func (g *Graph) decide(n *node) Action {
	for _, rule := range g.rules {
		if action, applies := rule(g, n); applies {
			return action
		}
	}
	return g.collect(n)
}

func (n *node) action(verb Verb) Action {
	return Action{Verb: verb, Object: n.identity(), Version: n.version}
}

// notObserved: what nobody has seen is only looked up, as an owner.
func notObserved(_ *Graph, n *node) (Action, bool) { return Action{}, !n.observed }

// changedMeanwhile: an object that was found to have changed is read again.
func changedMeanwhile(_ *Graph, n *node) (Action, bool) {
	return Action{Verb: LookUp, Object: n.identity()}, n.stale
}

// ownersLetGoOfIt: the references to owners that orphan their dependents are
// removed, and so are those to owners that have done so and are gone.
func ownersLetGoOfIt(g *Graph, n *node) (Action, bool) {
	var orphaned []Reference
	for i := range n.owners {
		owner := n.owners[i].owner
		_, before := g.orphaned.has[owner.uid]
		if before || owner.orphaning() {
			orphaned = append(orphaned, Reference{i, owner.uid})
		}
	}
	a := n.action(Disown)
	a.References = orphaned
	return a, len(orphaned) > 0
}

// orphansItsDependents: an object that is deleted with the finalizer orphan
// loses it with its last dependent. All kinds have been listed by then, or
// dependents might be missed.
func orphansItsDependents(g *Graph, n *node) (Action, bool) {
	if !n.orphaning() {
		return Action{}, false
	}
	if n.family != nil {
		return Action{}, true
	}
	if !g.complete() {
		g.park(n)
		return Action{}, true
	}
	a := n.action(RemoveFinalizer)
	a.Finalizer, a.Index = metav1.FinalizerOrphanDependents, int(n.orphan)
	return a, true
}

// waitsForItsDependents: an object that is deleted in the foreground loses the
// finalizer when nothing blocks its deletion. If it waits for itself, it no
// longer blocks those that wait for it.
func waitsForItsDependents(g *Graph, n *node) (Action, bool) {
	switch {
	case !n.waiting():
		return Action{}, false
	case n.family != nil && n.family.blockers > 0:
		ring := n.ring()
		a := n.action(Unblock)
		a.References = ring
		if len(ring) == 0 {
			a = Action{}
		}
		return a, true
	case !g.complete():
		g.park(n)
		return Action{}, true
	}
	a := n.action(RemoveFinalizer)
	a.Finalizer, a.Index = metav1.FinalizerDeleteDependents, int(n.foreground)
	return a, true
}

// isOnItsWayOut: a deletion is never taken back.
func isOnItsWayOut(_ *Graph, n *node) (Action, bool) { return Action{}, n.deleting || n.deleted }

func hasNoOwners(_ *Graph, n *node) (Action, bool) { return Action{}, len(n.owners) == 0 }

// ownersHoldIt: an object with an owner that holds it stays; references that do
// not hold it are removed. It stays as it is as long as something about its
// owners is not known.
func ownersHoldIt(g *Graph, n *node) (Action, bool) {
	var loose []Reference
	held, known := false, true
	for i := range n.owners {
		switch g.hold(n, &n.owners[i]) {
		case holds:
			held = true
		case dangles, waits:
			loose = append(loose, Reference{i, n.owners[i].owner.uid})
		default:
			known = false
		}
	}
	switch {
	case !known, held && len(loose) == 0:
		return Action{}, true
	case held:
		a := n.action(Disown)
		a.References = loose
		return a, true
	}
	return Action{}, false
}

// collect deletes an object that no owner holds. If one of them waits for it
// and it has dependents, these go first.
func (g *Graph) collect(n *node) Action {
	a := n.action(Delete)
	a.Policy = metav1.DeletePropagationBackground
	switch {
	case n.family != nil && g.awaited(n):
		a.Policy = metav1.DeletePropagationForeground
	case n.orphan != none:
		a.Policy = metav1.DeletePropagationOrphan
	case n.foreground != none:
		a.Policy = metav1.DeletePropagationForeground
	}
	return a
}

// awaited tells whether an owner waits for the node to go.
func (g *Graph) awaited(n *node) bool {
	for i := range n.owners {
		if g.hold(n, &n.owners[i]) == waits {
			return true
		}
	}
	return false
}

// hold is whether a reference holds its object.
type hold int8

const (
	unknown hold = iota
	holds
	dangles
	waits // the owner waits for the object to go
)

// hold tells whether a reference holds its object. That it does, the graph may
// say by itself, since nothing is deleted on account of that. That it does not,
// the API server must have said.
func (g *Graph) hold(n *node, r *reference) hold {
	if r.owner.observed && r.names(n) && !r.owner.waiting() {
		return holds
	}
	by, namespace := r.namedBy(), n.place.Value().namespace
	switch r.owner.known(by, namespace, g.epoch) {
	case absent:
		return dangles
	case waiting:
		return waits
	case present:
		return holds
	}
	kind := g.kinds[by.kind]
	switch {
	case kind == nil || kind.awaited:
		g.park(n)
		return unknown
	case !kind.namespaced:
		namespace = ""
	case namespace == "":
		return unknown // such an owner can be in no namespace, or in any
	}
	if c := r.owner.claim(by, namespace); !c.asked {
		c.asked = true
		g.ready = append(g.ready, claimed(Identity{by.kind, namespace, by.name, r.owner.uid}))
	}
	return unknown
}

// ring are the references by which a node that is deleted in the foreground
// waits for itself: it blocks owners that wait, directly or by way of others,
// for the node to go.
func (n *node) ring() []Reference {
	var ring []Reference
	for i := range n.owners {
		r := &n.owners[i]
		if r.blocks(n) && r.owner.waiting() && r.owner.blocks(n, map[*node]bool{}) {
			ring = append(ring, Reference{i, r.owner.uid})
		}
	}
	return ring
}

// blocks tells whether the node blocks another one: whether it is that one, or
// a chain of blocking references among nodes that wait leads there.
func (n *node) blocks(other *node, seen map[*node]bool) bool {
	if n == other {
		return true
	}
	if seen[n] {
		return false
	}
	seen[n] = true
	for i := range n.owners {
		if r := &n.owners[i]; r.blocks(n) && r.owner.waiting() && r.owner.blocks(other, seen) {
			return true
		}
	}
	return false
}
