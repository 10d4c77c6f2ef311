package decision

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Preemption is the decision about the deletion of pods with lower priority, for a pod
// that fits no node.
type Preemption struct {
	// Node is the node to which the pod is to be nominated, empty if no deletion of
	// pods makes the pod fit a node.
	Node string
	// Victims are the pods to delete, the most important first.
	Victims []*corev1.Pod
	// Displaced are the pods of lower priority that are nominated to the node. They
	// lose their nomination.
	Displaced []*corev1.Pod
	// Clear is set if the pod loses its own nomination.
	Clear bool
	// Message is the reason why there is no node, empty if there is one.
	Message string
}

// The reasons why preemption does not free a node.
const (
	noVictims     = "No preemption victims found for incoming pod"
	notResolvable = "Preemption is not helpful for scheduling"
	neverPreempts = "not eligible due to preemptionPolicy=Never."
)

// Preempt decides which pods to delete so that a pod fits a node. d is the decision
// about the pod, without a node, which must be the snapshot's last. Nodes and pods are
// chosen by the rules of kube-scheduler's plugin DefaultPreemption: as few violations
// of disruption budgets as possible, then victims of low priority, and few of them.
//
// choose returns a number in [0, n), the node at which the search begins. Nil means 0.
func (s *Snapshot) Preempt(pod *corev1.Pod, d *Decision, choose func(n int) int) Preemption {
	if s.profileOf(pod).NoPreemption {
		return Preemption{}
	}
	if why := s.mayNotPreempt(pod); why != "" {
		return Preemption{Message: why}
	}
	nodes := s.scratch.resolvable
	var reasons reasons
	reasons.add(notResolvable, d.Nodes-len(nodes))
	if !s.hasLowerPriority(priorityOf(pod)) {
		reasons.add(noVictims, len(nodes))
		return Preemption{Clear: true, Message: notAvailable(d.Nodes, reasons.byReason())}
	}
	candidates, err := s.candidates(pod, nodes, choose, &reasons)
	if err == nil {
		candidates, err = s.extendPreemption(pod, candidates)
	}
	if err != nil {
		return Preemption{Message: err.Error()}
	}
	best := choosePreemption(candidates)
	if best == nil {
		return Preemption{Clear: true, Message: notAvailable(d.Nodes, reasons.byReason())}
	}
	p := Preemption{Node: best.node.name, Displaced: s.NominatedBelow(pod, best.node.name)}
	for _, victim := range best.victims {
		p.Victims = append(p.Victims, victim.object)
	}
	return p
}

// mayNotPreempt returns the reason why a pod may not preempt others, or "": its policy,
// or that it has done so, and its victims terminate.
func (s *Snapshot) mayNotPreempt(pod *corev1.Pod) string {
	if ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority) == corev1.PreemptNever {
		return neverPreempts
	}
	n := s.nodes.get(cmp.Or(s.Nominated(pod.UID), pod.Status.NominatedNodeName))
	if n == nil || !slices.Contains(s.scratch.resolvable, n) {
		return ""
	}
	if s.AwaitsVictims(pod) {
		return "not eligible due to a terminating pod on the nominated node."
	}
	return ""
}

// candidate is a node that accepts the pod without its victims.
type candidate struct {
	node *node
	// victims are sorted, the most important first. There is at least one, as the node
	// rejects the pod with all of them. Those of a group may be on other nodes, too.
	victims []*boundPod
	// violations is the number of victims whose disruption budget does not allow it.
	violations int
}

// candidates returns the candidates among nodes, and adds the reasons of the others.
// The search ends when there are enough, one of which violates no disruption budget. An error is
// that the search for devices took too long.
func (s *Snapshot) candidates(pod *corev1.Pod, nodes []*node, choose func(n int) int, reasons *reasons) ([]candidate, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	r := newRequest(pod, s.profileOf(pod))
	t := trial{Snapshot: s, request: r, policy: s.prepare(r, s.scratch.checks)}
	s.scratch.checks = t.policy.checks
	t.global = t.policy.isGlobal()
	wanted := min(max(len(nodes)*r.profile.MinCandidatePercentage/100, r.profile.MinCandidates), len(nodes))
	start, harmless := 0, false
	if choose != nil {
		start = choose(len(nodes))
	}
	var found []candidate
	for i := range nodes {
		c, why := t.candidate(nodes[(start+i)%len(nodes)])
		if err := r.aborted(); err != nil {
			return nil, err
		}
		if len(why) > 0 {
			for _, reason := range why {
				reasons.add(reason, 1)
			}
			continue
		}
		found = append(found, c)
		if harmless = harmless || c.violations == 0; harmless && len(found) >= wanted {
			break
		}
	}
	return found, nil
}

// trial finds victims for a pod by hiding pods of the snapshot.
type trial struct {
	*Snapshot
	request *request
	policy  policy
	global  bool
}

// candidate returns the victims on a node, or the reasons why there are none. The
// snapshot is afterwards as before.
func (t *trial) candidate(n *node) (c candidate, why []string) {
	all := t.unitsBelow(priorityOf(t.request.pod), n.pods)
	if len(all) == 0 {
		return candidate{}, []string{noVictims}
	}
	for _, u := range all {
		t.hideUnit(u)
	}
	if why := t.rejected(n); len(why) > 0 {
		for _, u := range all {
			t.showUnit(u)
		}
		return candidate{}, why
	}
	c = candidate{node: n}
	violating, others := t.violating(all)
	victims := t.spare(n, nil, violating)
	for _, u := range victims {
		c.violations += u.violations
	}
	victims = t.spare(n, victims, others)
	for _, u := range victims {
		t.showUnit(u)
	}
	if len(victims) == 0 {
		return candidate{}, []string{noVictims} // only an extender rejects the node
	}
	slices.SortStableFunc(victims, byImportance)
	c.victims = podsOf(victims)
	return c, nil
}

// spare shows those units with which the node still accepts the pod, the most
// important first. It appends the others to victims.
func (t *trial) spare(n *node, victims, units []*unit) []*unit {
	for _, u := range units {
		t.showUnit(u)
		if len(t.rejected(n)) > 0 {
			t.hideUnit(u)
			victims = append(victims, u)
		}
	}
	return victims
}

// rejected returns the reasons why a node rejects the pod: none if it accepts it.
func (t *trial) rejected(n *node) []string {
	p := &t.policy
	if t.global {
		now := t.prepare(t.request, nil)
		p = &now
	}
	_, why := t.rejects(n, p, t.request, t.scratch.why[:0])
	return why
}

// started returns the time of the pod's start in nanoseconds since 1970.
func (p *boundPod) started() int64 {
	if p.object.Status.StartTime == nil {
		return math.MaxInt64
	}
	return p.object.Status.StartTime.UnixNano()
}

// preferences are the criteria by which a candidate is chosen, the most important
// first: the candidate with the smaller number is preferred.
var preferences = []struct {
	name string
	of   func(c *candidate) int64
}{
	{"fewest violations of disruption budgets", func(c *candidate) int64 { return int64(c.violations) }},
	{"lowest priority of the most important victim", func(c *candidate) int64 { return int64(c.victims[0].priority()) }},
	{"lowest sum of priorities", (*candidate).sumOfPriorities},
	{"fewest victims", func(c *candidate) int64 { return int64(len(c.victims)) }},
	{"most recent start of the most important victims", func(c *candidate) int64 { return -c.earliestStart() }},
}

// choosePreemption returns the preferred candidate, nil if there is none. Of equal ones
// it is the first.
func choosePreemption(candidates []candidate) *candidate {
	left := make([]*candidate, len(candidates))
	for i := range candidates {
		left[i] = &candidates[i]
	}
	for _, preference := range preferences {
		if len(left) < 2 {
			break
		}
		least := int64(math.MaxInt64)
		for _, c := range left {
			least = min(least, preference.of(c))
		}
		left = slices.DeleteFunc(left, func(c *candidate) bool { return preference.of(c) > least })
	}
	if len(left) == 0 {
		return nil
	}
	return left[0]
}

// sumOfPriorities adds up the priorities, each made positive so that more victims have
// a larger sum.
func (c *candidate) sumOfPriorities() int64 {
	var sum int64
	for _, p := range c.victims {
		sum += int64(p.priority()) + math.MaxInt32 + 1
	}
	return sum
}

// earliestStart returns the earliest start of the victims with the highest priority.
func (c *candidate) earliestStart() int64 {
	highest, earliest := int32(math.MinInt32), int64(math.MaxInt64)
	for _, p := range c.victims {
		if p.priority() > highest {
			highest, earliest = p.priority(), p.started()
		}
		if p.priority() == highest {
			earliest = min(earliest, p.started())
		}
	}
	return earliest
}

// violates counts a deletion in the pod's budgets, and reports whether one of them does
// not allow it.
func (s *Snapshot) violates(p *boundPod, used map[*budget]int32) bool {
	violated := false
	for _, b := range s.budgets[p.object.Namespace] {
		if !b.protects(p.object) {
			continue
		}
		if used[b]++; used[b] > b.allowed {
			violated = true
		}
	}
	return violated
}
