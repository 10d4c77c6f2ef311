package decision

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// Decide chooses a node for a pod that has none. It does not add the pod to the node:
// the caller does that with SetPod when it assumes or binds the pod.
//
// An extender that fails leaves the decision without a node, with its error.
//
// choose picks among nodes with the same score: it returns a number in [0, n). Nil
// picks the first.
func (s *Snapshot) Decide(pod *corev1.Pod, choose func(n int) int) Decision {
	nodes := s.nodes.list()
	d := Decision{Nodes: len(nodes)}
	s.scratch.resolvable = s.scratch.resolvable[:0]
	switch {
	case len(pod.Spec.SchedulingGates) > 0:
		d.Gated = true
		return d
	case len(nodes) == 0:
		d.WokenBy = NodeAdded
		return d
	}
	if s.decisions++; s.decisions%keepCounts == 0 {
		s.dropOldCounts()
	}
	r := newRequest(pod, s.profileOf(pod))
	r.extenders = s.extendersOf(pod)
	policy := s.prepare(r, s.scratch.checks)
	s.scratch.checks = policy.checks
	if policy.podReason != "" {
		d.PodReason = policy.podReason
		d.reject(policy.rejecting)
		return d
	}
	feasible := s.feasible(r, nodes, policy, &d)
	d.Feasible = len(feasible)
	if len(feasible) == 0 {
		d.Release = r.devices.release(pod)
		return d
	}
	best := feasible[0]
	if len(feasible) > 1 {
		best = pick(feasible, s.rank(r, feasible), choose)
	}
	d.Node = best.name
	d.Claims, _ = r.place(&s.storage, best)
	if len(d.Claims) == 0 {
		d.Devices, d.Err = r.devices.place(best)
		d.Wait, d.Shares = r.devices.awaits(d.Devices), r.devices != nil && r.devices.shares
		d.ExtendedStatus = r.extendedStatus(best)
	}
	return d
}

// feasible returns the nodes that no filter rejects. It stops when it has found
// enough; if there are none it records the reasons.
func (s *Snapshot) feasible(r *request, nodes []*node, p policy, d *Decision) []*node {
	found, wanted := s.scratch.feasible[:0], enough(len(nodes), r.profile.PercentageOfNodes)
	defer func() { s.scratch.feasible = found }()

	// The nominated node is chosen if it still fits.
	if nominated := s.nodes.get(cmp.Or(s.Nominated(r.pod.UID), r.pod.Status.NominatedNodeName)); nominated != nil {
		if failed, _ := s.rejects(nominated, &p, r, s.scratch.why[:0]); failed < 0 && s.nominatedPasses(r, nominated) {
			return append(found, nominated)
		}
		if d.Err = r.aborted(); d.Err != nil {
			return nil
		}
	}
	start, checked, rejecting := s.start, 0, p.rejecting
	reasons := s.scratch.reasons[:0]
	defer func() { s.scratch.reasons = reasons }()
	if p.only != nil {
		start = 0
		reasons.add("node(s) didn't satisfy plugin(s) ["+p.onlyBy+"]", len(nodes)-len(p.only))
		nodes, wanted = p.only, len(p.only)
	}
	for ; checked < len(nodes) && len(found) < wanted; checked++ {
		n := nodes[(start+checked)%len(nodes)]
		failed, why := s.rejects(n, &p, r, s.scratch.why[:0])
		if failed < 0 {
			found = append(found, n)
			continue
		}
		if d.Err = r.aborted(); d.Err != nil {
			return nil
		}
		if resolves(failed, why) {
			s.scratch.resolvable = append(s.scratch.resolvable, n)
		}
		s.scratch.why = why
		rejecting |= 1 << failed
		for _, reason := range why {
			reasons.add(reason, 1)
		}
	}
	// The next search begins where this one ended, so that all nodes are used.
	if p.only == nil {
		s.start = (start + checked) % len(nodes)
	}
	before := len(found)
	if found, d.Err = s.passExtenders(r, found, &reasons); d.Err != nil {
		return nil
	}
	if len(found) == 0 {
		d.reject(rejecting)
		d.Reasons = reasons.byReason()
		if before > 0 {
			d.Filters, d.WokenBy = append(d.Filters, extenderName), anyEvent
		}
	}
	return found
}

// nominatedPasses reports whether the extenders accept the nominated node. If one fails,
// all nodes are tried.
func (s *Snapshot) nominatedPasses(r *request, n *node) bool {
	var unused reasons
	found, err := s.passExtenders(r, []*node{n}, &unused)
	return err == nil && len(found) == 1
}

const (
	// fewNodes is the number of nodes up to which all are checked.
	fewNodes = 100
	// leastPercentage of the nodes is checked in a cluster of any size.
	leastPercentage = 5
)

// enough returns the number of feasible nodes after which the search ends: all in a
// small cluster, half of them in a cluster of some hundred nodes, down to 5 % in large
// ones. It is percentageOfNodesToScore as kube-scheduler adapts it, unless a profile sets
// it.
func enough(nodes, percentage int) int {
	if nodes < fewNodes || percentage >= 100 {
		return nodes
	}
	if percentage == 0 {
		percentage = max(50-nodes/125, leastPercentage)
	}
	return max(nodes*percentage/100, fewNodes)
}

// pick returns a node with the highest score.
func pick(nodes []*node, scores []int64, choose func(n int) int) *node {
	best, ties := scores[0], 0
	for _, score := range scores {
		switch {
		case score > best:
			best, ties = score, 1
		case score == best:
			ties++
		}
	}
	skip := 0
	if choose != nil && ties > 1 {
		skip = choose(ties)
	}
	for i, score := range scores {
		if score != best {
			continue
		}
		if skip == 0 {
			return nodes[i]
		}
		skip--
	}
	return nodes[0]
}
