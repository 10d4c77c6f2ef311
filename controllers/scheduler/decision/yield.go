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
	units []*unit
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
	var pods []*boundPod
	for _, p := range s.pods {
		if p.node.object != nil {
			pods = append(pods, p)
		}
	}
	y := &Yielding{Snapshot: s, units: s.unitsBelow(priorityOf(to), pods)}
	if len(y.units) == 0 {
		return nil, noYielding
	}
	for _, u := range y.units {
		s.hideUnit(u)
	}
	return y, ""
}

// End shows the pods again.
func (y *Yielding) End() {
	for _, u := range y.units {
		y.showUnit(u)
	}
}

// Victims returns the pods to delete, the most important first, so that the pods of the gang,
// which are assumed on nodes since, fit there: as few violations of disruption budgets as possible,
// then pods of low priority. All pods are shown again.
func (y *Yielding) Victims(gang []*corev1.Pod) []*corev1.Pod {
	members := y.members(gang)
	violating, others := y.violating(y.units)
	hidden := y.spare(members, nil, violating)
	hidden = y.spare(members, hidden, others)
	for _, u := range hidden {
		y.showUnit(u)
	}
	slices.SortStableFunc(hidden, byImportance)
	var victims []*corev1.Pod
	for _, p := range podsOf(hidden) {
		victims = append(victims, p.object)
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

// spare shows those units with which the members still fit. It appends the others to victims.
func (y *Yielding) spare(members []member, victims, units []*unit) []*unit {
	for _, u := range units {
		y.showUnit(u)
		if !y.fit(members, u) {
			y.hideUnit(u)
			victims = append(victims, u)
		}
	}
	return victims
}

// fit reports whether the members that the pods of a unit may keep away fit where they are, one
// after another.
func (y *Yielding) fit(members []member, u *unit) bool {
	var concerned []*member
	for i := range members {
		m := &members[i]
		if m.global || slices.ContainsFunc(u.pods, func(p *boundPod) bool { return p.node == m.node }) {
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
	return n != nil && slices.ContainsFunc(n.pods, func(p *boundPod) bool { return s.priorityIn(p) < priorityOf(pod) && p.isPreempted() })
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
