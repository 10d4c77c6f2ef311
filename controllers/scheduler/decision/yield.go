package decision

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// noYielding is the reason why no pod yields its place to a gang.
const noYielding = "No preemption victims found for incoming preemptor"

// Yielding are pods of lower priority than a gang. They are hidden: pods are decided on as if
// they had gone, until End or Victims is called.
type Yielding struct {
	*Snapshot
	pods []*boundPod
}

// Yield hides all pods of lower priority than one of a gang. It returns nil and the reason if
// there are none, or if the gang may not preempt them.
func (s *Snapshot) Yield(to *corev1.Pod) (yielding *Yielding, why string) {
	if s.profileOf(to).NoPreemption {
		return nil, ""
	}
	if ptr.Deref(to.Spec.PreemptionPolicy, corev1.PreemptLowerPriority) == corev1.PreemptNever {
		return nil, neverPreempts
	}
	if !s.hasLowerPriority(priorityOf(to)) {
		return nil, noYielding
	}
	y := &Yielding{Snapshot: s}
	for _, p := range s.pods {
		if p.priority() < priorityOf(to) && p.node.object != nil {
			y.pods = append(y.pods, p)
		}
	}
	if len(y.pods) == 0 {
		return nil, noYielding
	}
	slices.SortFunc(y.pods, byImportance)
	for _, p := range y.pods {
		s.hide(p)
	}
	return y, ""
}

// End shows the pods again.
func (y *Yielding) End() {
	for _, p := range y.pods {
		y.show(p)
	}
}

// Victims returns the pods to delete, the most important first, so that the pods of the gang,
// which are assumed on nodes since, fit there: as few violations of disruption budgets as possible,
// then pods of low priority. All pods are shown again.
func (y *Yielding) Victims(gang []*corev1.Pod) []*corev1.Pod {
	members := y.members(gang)
	violating, others := y.violating(y.pods)
	hidden := y.spare(members, nil, violating)
	hidden = y.spare(members, hidden, others)
	for _, p := range hidden {
		y.show(p)
	}
	slices.SortStableFunc(hidden, byImportance)
	victims := make([]*corev1.Pod, len(hidden))
	for i, p := range hidden {
		victims[i] = p.object
	}
	return victims
}

// member is a pod of a gang on the node where it is assumed.
type member struct {
	*boundPod
	request *request
	policy  policy
	// global is set if the pod may depend on pods of other nodes.
	global bool
}

// members returns the assumed pods of a gang that fit where they are: with another one, which
// depends on pods that were assumed after it, no pod could be spared.
func (y *Yielding) members(gang []*corev1.Pod) []member {
	var members []member
	for _, pod := range gang {
		p := y.Snapshot.pods[pod.UID]
		y.hide(p)
		m := member{boundPod: p, request: newRequest(pod, y.profileOf(pod))}
		m.policy = y.prepare(m.request, nil)
		m.global = m.policy.isGlobal()
		if y.accepts(&m) {
			members = append(members, m)
		}
		y.show(p)
	}
	return members
}

// spare shows those pods with which the members still fit. It appends the others to victims.
func (y *Yielding) spare(members []member, victims, pods []*boundPod) []*boundPod {
	for _, p := range pods {
		y.show(p)
		if !y.fit(members, p.node) {
			y.hide(p)
			victims = append(victims, p)
		}
	}
	return victims
}

// fit reports whether the members that pods of a node may keep away fit where they are, one after
// another.
func (y *Yielding) fit(members []member, n *node) bool {
	var concerned []*member
	for i := range members {
		if m := &members[i]; m.global || m.node == n {
			concerned = append(concerned, m)
			y.hide(m.boundPod)
		}
	}
	fit := true
	for _, m := range concerned {
		fit = fit && y.accepts(m)
		y.show(m.boundPod)
	}
	return fit
}

// accepts reports whether the node of a hidden member accepts it.
func (y *Yielding) accepts(m *member) bool {
	p := &m.policy
	if m.global {
		now := y.prepare(m.request, nil)
		p = &now
	}
	if p.podReason != "" {
		return false
	}
	failed, _ := y.rejects(m.node, p, m.request, y.scratch.why[:0])
	return failed < 0
}

// AwaitsVictims reports whether a pod is nominated to a node where pods of lower priority, which
// are being deleted by preemption, have not gone yet.
func (s *Snapshot) AwaitsVictims(pod *corev1.Pod) bool {
	n := s.nodes.get(cmp.Or(s.Nominated(pod.UID), pod.Status.NominatedNodeName))
	return n != nil && slices.ContainsFunc(n.pods, func(p *boundPod) bool { return p.priority() < priorityOf(pod) && p.isPreempted() })
}

// NominatedBelow returns the pods that are nominated to a node and have a lower priority than a
// pod.
func (s *Snapshot) NominatedBelow(pod *corev1.Pod, nodeName string) []*corev1.Pod {
	n := s.nodes.get(nodeName)
	if n == nil {
		return nil
	}
	var others []*corev1.Pod
	for _, other := range n.nominated {
		if other.priority() < priorityOf(pod) {
			others = append(others, other.object)
		}
	}
	return others
}
