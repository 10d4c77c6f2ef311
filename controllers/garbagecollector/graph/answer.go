package graph

// Answer tells how the action for a subject went.
func (g *Graph) Answer(s Subject, a Action, r Result) Again {
	n, ok := g.nodes[s.UID]
	if !ok {
		return Settled
	}
	if owner, is := s.claims(); is {
		return g.answerLookup(n, owner, a, r)
	}
	if !n.observed {
		return Settled
	}
	switch {
	case r.Outcome == Failed:
		return Later
	case a.epoch != g.epoch:
		// This may be the answer of an API server that is no more.
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

// answerLookup takes note of whether an owner is there.
func (g *Graph) answerLookup(n *node, owner Identity, a Action, r Result) Again {
	if n.family == nil {
		return Settled
	}
	c := n.claim(coordinates{owner.Kind, owner.Name}, owner.Namespace)
	if r.Outcome == Failed {
		return Later
	}
	if a.epoch != g.epoch || a.lookup != c.lookup {
		// What is asked about has changed since.
		if c.asked {
			g.ready = append(g.ready, claimed(owner))
		}
		return Soon
	}
	c.asked, c.epoch = false, g.epoch
	switch {
	case r.Outcome == Absent || r.Object.UID != n.uid:
		c.answer = absent
		if n.observed && n.identity() == owner {
			g.lose(n, true)
			return Settled
		}
	case r.Object.Waiting():
		c.answer = waiting
	default:
		c.answer = present
	}
	again := Settled
	if c.answer != absent && !n.observed {
		// A watch should see it soon. It may go before it is seen, or be of a
		// kind that is not watched.
		c.asked, again = true, Later
	}
	g.touchDependents(n)
	return again
}

// reread takes over what was read of an object after a conflict.
func (g *Graph) reread(n *node, o Object) Again {
	if o.UID != n.uid {
		g.lose(n, true)
		return Settled
	}
	if o.Version > n.version {
		g.refresh(n, o)
		return Soon
	}
	// It is as it was. What was refused then may be refused again.
	n.stale = false
	return Later
}

// refresh takes over what the API server has answered, unless a watch was
// faster.
func (g *Graph) refresh(n *node, o Object) {
	if n.observed && o.UID == n.uid && o.Version >= n.version {
		g.update(n, o, false)
	}
}
