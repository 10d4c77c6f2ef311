package graph

// Complete takes the result of the action for a subject.
func (g *Graph) Complete(s Subject, a Action, r Result) Requeue {
	n, ok := g.nodes[s.UID]
	if !ok {
		return NoRequeue
	}
	if owner, is := s.lookup(); is {
		return g.completeLookup(n, owner, a, r)
	}
	if !n.observed {
		return NoRequeue
	}
	switch {
	case r.Outcome == Failed:
		return RequeueWithBackoff
	case a.epoch != g.epoch:
		// The response may be older than a restore of the API server.
		return RequeueNow
	}
	switch r.Outcome {
	case Absent:
		g.remove(n, true)
		return NoRequeue
	case Conflict:
		n.stale = n.stale || n.version == a.Version
		return RequeueNow
	}
	switch a.Verb {
	case LookUp:
		return g.reread(n, r.Object)
	case Delete:
		n.deleted = n.version == a.Version
	case Disown, Unblock, RemoveFinalizer:
		g.refresh(n, r.Object)
	}
	return NoRequeue
}

// completeLookup records whether an owner exists.
func (g *Graph) completeLookup(n *node, owner Identity, a Action, r Result) Requeue {
	if n.dependents == nil {
		return NoRequeue
	}
	l := n.lookup(coordinates{owner.Kind, owner.Name}, owner.Namespace)
	if r.Outcome == Failed {
		return RequeueWithBackoff
	}
	if a.epoch != g.epoch || a.lookup != l.sequence {
		return RequeueNow // the owner has changed since
	}
	l.pending, l.epoch = false, g.epoch
	switch {
	case r.Outcome == Absent || r.Object.UID != n.uid:
		l.result = absent
		if n.observed && n.identity() == owner {
			g.remove(n, true)
			return NoRequeue
		}
	case r.Object.Waiting():
		l.result = waiting
	default:
		l.result = present
	}
	requeue := NoRequeue
	if l.result != absent && !n.observed {
		// It is looked up again until a watch observes it. It may be deleted before
		// that, or be of a kind that is not watched.
		l.pending, requeue = true, RequeueWithBackoff
	}
	g.enqueueDependents(n)
	return requeue
}

// reread updates the graph with an object that was read after a conflict.
func (g *Graph) reread(n *node, o Object) Requeue {
	if o.UID != n.uid {
		g.remove(n, true)
		return NoRequeue
	}
	if o.Version > n.version {
		g.refresh(n, o)
		return RequeueNow
	}
	// The object has not changed. The same action may fail again.
	n.stale = false
	return RequeueWithBackoff
}

// refresh updates the graph with an object from a response, unless a watch has
// observed a newer version.
func (g *Graph) refresh(n *node, o Object) {
	if n.observed && o.UID == n.uid && o.Version >= n.version {
		g.update(n, o, false)
	}
}
