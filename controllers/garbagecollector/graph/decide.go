package graph

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Next returns the action for a subject.
func (g *Graph) Next(s Subject) Action {
	n, ok := g.nodes[s.UID]
	if !ok {
		return Action{}
	}
	if owner, is := s.lookup(); is {
		return g.nextLookup(n, owner)
	}
	a := g.decide(n)
	a.epoch = g.epoch
	if a.Finalizer == metav1.FinalizerOrphanDependents {
		// The owner can be deleted as soon as the caller executes the action.
		g.orphaned.add(n.uid)
	}
	return a
}

// nextLookup returns the lookup of an owner, if it is still needed.
func (g *Graph) nextLookup(n *node, owner Identity) Action {
	if n.dependents == nil {
		return Action{}
	}
	l := n.lookup(coordinates{owner.Kind, owner.Name}, owner.Namespace)
	if !l.pending {
		return Action{}
	}
	if g.kinds[owner.Kind] == nil {
		// An earlier result must not count when the kind is served again: the owner
		// is looked up repeatedly because it was present, which this ends.
		l.pending, l.result = false, noResult
		for _, d := range n.dependents.list {
			g.delay(d.node)
		}
		return Action{}
	}
	g.lookups++
	l.sequence = g.lookups
	return Action{Verb: LookUp, Object: owner, epoch: g.epoch, lookup: l.sequence}
}

// rule is one of the decisions about an object.
type rule func(*Graph, *node) (a Action, applies bool)

// rules are the decisions about an object in order of precedence. The first that
// applies determines the action, which may be Nothing.
func rules() []rule {
	return []rule{
		notObserved,
		isStale,
		isOrphaned,
		orphansItsDependents,
		waitsForItsDependents,
		isBeingDeleted,
		hasNoOwners,
		isHeld,
	}
}

// decide returns the action for an object.
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

// notObserved: an object that no watch has observed is only looked up, as an owner.
func notObserved(_ *Graph, n *node) (Action, bool) { return Action{}, !n.observed }

// isStale: an object is read again after a conflict.
func isStale(_ *Graph, n *node) (Action, bool) {
	return Action{Verb: LookUp, Object: n.identity()}, n.stale
}

// isOrphaned: references to owners that orphan their dependents, or did so before
// they were deleted, are removed.
func isOrphaned(g *Graph, n *node) (Action, bool) {
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

// orphansItsDependents: an object that is deleted with the finalizer orphan loses
// the finalizer when it has no dependents any more and all kinds have been listed,
// as dependents may be unknown before.
func orphansItsDependents(g *Graph, n *node) (Action, bool) {
	if !n.orphaning() {
		return Action{}, false
	}
	if n.dependents != nil {
		return Action{}, true
	}
	if !g.complete() {
		g.delay(n)
		return Action{}, true
	}
	a := n.action(RemoveFinalizer)
	a.Finalizer, a.Index = metav1.FinalizerOrphanDependents, int(n.orphan)
	return a, true
}

// waitsForItsDependents: an object that is deleted in the foreground loses the
// finalizer when no dependent blocks its deletion. If it waits for itself in a cycle,
// it stops blocking its owners.
func waitsForItsDependents(g *Graph, n *node) (Action, bool) {
	switch {
	case !n.waiting():
		return Action{}, false
	case n.dependents != nil && n.dependents.blockers > 0:
		cycle := n.cycle()
		a := n.action(Unblock)
		a.References = cycle
		if len(cycle) == 0 {
			a = Action{}
		}
		return a, true
	case !g.complete():
		g.delay(n)
		return Action{}, true
	}
	a := n.action(RemoveFinalizer)
	a.Finalizer, a.Index = metav1.FinalizerDeleteDependents, int(n.foreground)
	return a, true
}

// isBeingDeleted: a deletion is never undone.
func isBeingDeleted(_ *Graph, n *node) (Action, bool) { return Action{}, n.deleting || n.deleted }

func hasNoOwners(_ *Graph, n *node) (Action, bool) { return Action{}, len(n.owners) == 0 }

// isHeld: an object with a reference that holds it is kept, and references that do
// not hold it are removed. Nothing is done while the state of an owner is unknown.
func isHeld(g *Graph, n *node) (Action, bool) {
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

// collect deletes an object that no reference holds: in the foreground if an owner
// is being deleted in the foreground and the object has dependents.
func (g *Graph) collect(n *node) Action {
	a := n.action(Delete)
	a.Policy = metav1.DeletePropagationBackground
	switch {
	case n.dependents != nil && g.awaited(n):
		a.Policy = metav1.DeletePropagationForeground
	case n.orphan != none:
		a.Policy = metav1.DeletePropagationOrphan
	case n.foreground != none:
		a.Policy = metav1.DeletePropagationForeground
	}
	return a
}

// awaited reports whether an owner is being deleted in the foreground.
func (g *Graph) awaited(n *node) bool {
	for i := range n.owners {
		if g.hold(n, &n.owners[i]) == waits {
			return true
		}
	}
	return false
}

// hold is the effect of a reference on its object.
type hold int8

const (
	unknown hold = iota
	holds
	dangles
	waits // the owner is being deleted in the foreground
)

// hold returns the effect of a reference. That it holds its object follows from the
// graph alone, since nothing is deleted because of that. That it does not must follow
// from a watch event or a response of the API server.
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
		g.delay(n)
		return unknown
	case !kind.namespaced:
		namespace = ""
	case namespace == "":
		return unknown // a cluster-scoped object cannot have a namespaced owner
	}
	if l := r.owner.lookup(by, namespace); !l.pending {
		l.pending = true
		g.ready = append(g.ready, lookupSubject(Identity{by.kind, namespace, by.name, r.owner.uid}))
	}
	return unknown
}

// cycle returns the references by which a node that is deleted in the foreground
// waits for itself: it blocks owners that wait, directly or indirectly, for the
// node.
func (n *node) cycle() []Reference {
	var cycle []Reference
	for i := range n.owners {
		r := &n.owners[i]
		if r.blocks(n) && r.owner.waiting() && r.owner.blocks(n, map[*node]bool{}) {
			cycle = append(cycle, Reference{i, r.owner.uid})
		}
	}
	return cycle
}

// blocks reports whether the node is the other one, or blocks it through a chain of
// blocking references among nodes that wait.
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
