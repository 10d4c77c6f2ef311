package graph

// Complete takes the result of the action for a subject.
func (g *Graph) Complete(s Subject, a Action, r Result) Requeue {
	n, ok := g.nodes[s.UID]
	if !ok {
		return Settled
	}
	if owner, is := s.lookup(); is {
		return g.completeLookup(n, owner, a, r)
	}
	if !n.observed {
		return Settled
	}
	switch {
	case r.Outcome == Failed:
		return Backoff
	case a.epoch != g.epoch:
		// The response may be older than a restore of the API server.
		g.touch(n)
		return Soon
	}
	switch r.Outcome {
	case Absent:
		g.lose(n, true)
		return Settled
	case Conflict:
		n.stale = n.stale || n.version == a.Version
		g.touch(n)
		return Soon
	}
	switch a.Verb {
	case LookUp:
		return g.reread(n, r.Object)
	case Delete:
		n.deleted = n.version == a.Version
	case Disown, Unblock, RemoveFinalizer:
		g.refresh(n, r.Object)
	}
	return Settled
}

// completeLookup records whether an owner exists.
func (g *Graph) completeLookup(n *node, owner Identity, a Action, r Result) Requeue {
	if n.dependents == nil {
		return Settled
	}
	l := n.lookup(coordinates{owner.Kind, owner.Name}, owner.Namespace)
	if r.Outcome == Failed {
		return Backoff
	}
	if a.epoch != g.epoch || a.lookup != l.sequence {
		// The owner has changed since.
		if l.pending {
			g.ready = append(g.ready, lookupSubject(owner))
		}
		return Soon
	}
	l.pending, l.epoch = false, g.epoch
	switch {
	case r.Outcome == Absent || r.Object.UID != n.uid:
		l.result = absent
		if n.observed && n.identity() == owner {
			g.lose(n, true)
			return Settled
		}
	case r.Object.Waiting():
		l.result = waiting
	default:
		l.result = present
	}
	requeue := Settled
	if l.result != absent && !n.observed {
		// It is looked up again until a watch observes it. It may be deleted before
		// that, or be of a kind that is not watched.
		l.pending, requeue = true, Backoff
	}
	g.touchDependents(n)
	return requeue
}

// reread updates the graph with an object that was read after a conflict.
func (g *Graph) reread(n *node, o Object) Requeue {
	if o.UID != n.uid {
		g.lose(n, true)
		return Settled
	}
	if o.Version > n.version {
		g.refresh(n, o)
		return Soon
	}
	// The object has not changed. The same action may fail again.
	n.stale = false
	return Backoff
}

// refresh updates the graph with an object from a response, unless a watch has
// observed a newer version.
func (g *Graph) refresh(n *node, o Object) {
	if n.observed && o.UID == n.uid && o.Version >= n.version {
		g.update(n, o, false)
	}
}
