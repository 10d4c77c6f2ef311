package decision

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// podGroup is what preemption considers of a PodGroup.
type podGroup struct {
	priority int32
	// together is set if its pods are only preempted all at the same time: the disruption mode All.
	together bool
}

// podGroups are the PodGroups, and the bound pods that name one.
type podGroups struct {
	byName  map[types.NamespacedName]podGroup
	members map[types.NamespacedName]map[*boundPod]bool
}

// ConsiderGroups lets preemption take pods as parts of their PodGroups. It is called first.
func (s *Snapshot) ConsiderGroups() {
	s.groups = &podGroups{byName: map[types.NamespacedName]podGroup{}, members: map[types.NamespacedName]map[*boundPod]bool{}}
}

// SetGroup adds a PodGroup, or replaces it.
func (s *Snapshot) SetGroup(object *schedulingv1beta1.PodGroup) {
	mode := object.Spec.DisruptionMode
	s.groups.byName[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = podGroup{
		priority: ptr.Deref(object.Spec.Priority, 0), together: mode != nil && mode.All != nil,
	}
}

// RemoveGroup removes a PodGroup. Its pods are preempted as pods by themselves then.
func (s *Snapshot) RemoveGroup(namespace, name string) {
	delete(s.groups.byName, types.NamespacedName{Namespace: namespace, Name: name})
}

// groupOf returns the name of a pod's group, if groups are considered and it has one.
func (s *Snapshot) groupOf(pod *corev1.Pod) (name types.NamespacedName, ok bool) {
	group := pod.Spec.SchedulingGroup
	if s.groups == nil || group == nil || group.PodGroupName == nil {
		return name, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}, true
}

// setMember adds a bound pod to its group, or removes it.
func (s *Snapshot) setMember(p *boundPod, present bool) {
	name, ok := s.groupOf(p.object)
	if !ok {
		return
	}
	members := s.groups.members
	if present {
		if members[name] == nil {
			members[name] = map[*boundPod]bool{}
		}
		members[name][p] = true
		return
	}
	if delete(members[name], p); len(members[name]) == 0 {
		delete(members, name)
	}
}

// unit is what preemption deletes or spares as a whole: a pod, or all pods of a PodGroup with the
// disruption mode All, on whichever nodes.
type unit struct {
	pods     []*boundPod
	priority int32
	// grouped is set for pods of groups, also for one that is preempted by itself.
	grouped bool
	// violations is the number of pods whose disruption budget does not allow their deletion.
	violations int
}

// single returns the unit of a pod of no group.
func single(p *boundPod) *unit { return &unit{pods: []*boundPod{p}, priority: p.priority()} }

// priorityIn returns the priority of a pod among those that may be preempted: that of its group.
func (s *Snapshot) priorityIn(p *boundPod) int32 {
	if name, ok := s.groupOf(p.object); ok {
		if group, ok := s.groups.byName[name]; ok {
			return group.priority
		}
	}
	return p.priority()
}

// unitsBelow returns the units of pods whose priority is lower, the most important first.
func (s *Snapshot) unitsBelow(priority int32, pods []*boundPod) []*unit {
	var units []*unit
	var taken map[types.NamespacedName]bool
	for _, p := range pods {
		own := s.priorityIn(p)
		if own >= priority {
			continue
		}
		u := &unit{pods: []*boundPod{p}, priority: own}
		var name types.NamespacedName
		if name, u.grouped = s.groupOf(p.object); u.grouped && s.groups.byName[name].together {
			if taken[name] {
				continue
			}
			if taken == nil {
				taken = map[types.NamespacedName]bool{}
			}
			taken[name] = true
			u.pods = u.pods[:0]
			for member := range s.groups.members[name] {
				u.pods = append(u.pods, member)
			}
			slices.SortFunc(u.pods, byPodName)
		}
		units = append(units, u)
	}
	slices.SortFunc(units, byImportance)
	return units
}

// hasLowerPriority reports whether a pod that has a node, or a group, has a lower priority.
func (s *Snapshot) hasLowerPriority(priority int32) bool {
	for other := range s.priorities {
		if other < priority {
			return true
		}
	}
	if s.groups != nil {
		for _, group := range s.groups.byName {
			if group.priority < priority {
				return true
			}
		}
	}
	return false
}

// hideUnit and showUnit are hide and show of all pods of a unit.
func (s *Snapshot) hideUnit(u *unit) {
	for _, p := range u.pods {
		s.hide(p)
	}
}

func (s *Snapshot) showUnit(u *unit) {
	for _, p := range u.pods {
		s.show(p)
	}
}

// byImportance orders units by descending priority; pods of groups are more important than others,
// larger units than smaller ones, and then those that started first. A pod that has not started is
// the least important.
func byImportance(a, b *unit) int {
	return cmp.Or(
		cmp.Compare(b.priority, a.priority),
		cmp.Compare(b.rank(), a.rank()),
		cmp.Compare(len(b.pods), len(a.pods)),
		cmp.Compare(a.started(), b.started()),
		byPodName(a.pods[0], b.pods[0]),
	)
}

func (u *unit) rank() int {
	if u.grouped {
		return 1
	}
	return 0
}

// started returns when the first pod of the unit started.
func (u *unit) started() int64 {
	first := int64(math.MaxInt64)
	for _, p := range u.pods {
		first = min(first, p.started())
	}
	return first
}

func byPodName(a, b *boundPod) int {
	return cmp.Or(cmp.Compare(a.object.Namespace, b.object.Namespace), cmp.Compare(a.object.Name, b.object.Name))
}

// podsOf returns the pods of units, in order.
func podsOf(units []*unit) []*boundPod {
	var pods []*boundPod
	for _, u := range units {
		pods = append(pods, u.pods...)
	}
	return pods
}

// violating separates units, in order, whose deletion violates a disruption budget.
func (s *Snapshot) violating(units []*unit) (violating, others []*unit) {
	used := map[*budget]int32{}
	for _, u := range units {
		for _, p := range u.pods {
			if s.violates(p, used) {
				u.violations++
			}
		}
		if u.violations > 0 {
			violating = append(violating, u)
		} else {
			others = append(others, u)
		}
	}
	return violating, others
}
