// Package gang owns which pods belong to which PodGroup of scheduling.k8s.io, and whether they
// are complete enough to be scheduled (KEP-4671). It is pure: it has no client, no clock and no
// goroutine.
package gang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Groups are the PodGroups with their pods. They are not safe for concurrent use.
type Groups struct {
	groups map[types.NamespacedName]*Group
}

// New returns Groups without any.
func New() *Groups { return &Groups{groups: map[types.NamespacedName]*Group{}} }

// Group is a PodGroup, or the name of one that does not exist, with the pods that name it.
type Group struct {
	// Object is nil while the PodGroup does not exist.
	Object *schedulingv1beta1.PodGroup

	pods map[types.UID]*corev1.Pod
	// scheduled are the number of pods that have a node, and gated of those that have
	// scheduling gates.
	scheduled, gated int
}

// KeyOf returns the namespace and name of a pod's group, if it has one.
func KeyOf(pod *corev1.Pod) (key types.NamespacedName, ok bool) {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return types.NamespacedName{Namespace: pod.Namespace, Name: *g.PodGroupName}, true
	}
	return key, false
}

func nameOf(object *schedulingv1beta1.PodGroup) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// SetObject adds or changes a PodGroup, and returns the pods without a node whose Held has
// changed.
func (g *Groups) SetObject(object *schedulingv1beta1.PodGroup) []*corev1.Pod {
	return g.change(nameOf(object), func(group *Group) { group.Object = object })
}

// RemoveObject removes a PodGroup. Its pods stay, and wait for another of its name. It returns
// those whose Held has changed.
func (g *Groups) RemoveObject(object *schedulingv1beta1.PodGroup) []*corev1.Pod {
	return g.change(nameOf(object), func(group *Group) { group.Object = nil })
}

// SetPod adds or changes a pod that names a group: one with a node, also if it is only assumed to
// be on it, or one that waits for a node. It returns the pods without a node whose Held has
// changed.
func (g *Groups) SetPod(pod *corev1.Pod) []*corev1.Pod {
	key, ok := KeyOf(pod)
	if !ok {
		return nil
	}
	return g.change(key, func(group *Group) {
		group.remove(pod.UID)
		group.pods[pod.UID] = pod
		group.count(pod, 1)
	})
}

// RemovePod removes a pod that was deleted, or needs no node any more. It returns the pods
// without a node whose Held has changed.
func (g *Groups) RemovePod(pod *corev1.Pod) []*corev1.Pod {
	key, ok := KeyOf(pod)
	if !ok {
		return nil
	}
	return g.change(key, func(group *Group) { group.remove(pod.UID) })
}

// change changes a group, and returns its pods without a node if that changes whether they are
// held.
func (g *Groups) change(key types.NamespacedName, change func(*Group)) []*corev1.Pod {
	group := g.groups[key]
	if group == nil {
		group = &Group{pods: map[types.UID]*corev1.Pod{}}
		g.groups[key] = group
	}
	before := group.held()
	change(group)
	if group.Object == nil && len(group.pods) == 0 {
		delete(g.groups, key)
	}
	if group.held() == before {
		return nil
	}
	return group.Pending()
}

func (g *Group) remove(uid types.UID) {
	if pod := g.pods[uid]; pod != nil {
		delete(g.pods, uid)
		g.count(pod, -1)
	}
}

func (g *Group) count(pod *corev1.Pod, n int) {
	switch {
	case pod.Spec.NodeName != "":
		g.scheduled += n
	case len(pod.Spec.SchedulingGates) > 0:
		g.gated += n
	}
}

// Held reports whether a pod must wait: for its group to exist, for as many pods of a gang as it
// needs to exist, or for the scheduling gates of one of the pods of the group without a node.
func (g *Groups) Held(pod *corev1.Pod) bool {
	group := g.Of(pod)
	if group == nil {
		return false
	}
	if known := group.pods[pod.UID]; known != nil && known.Spec.NodeName != "" {
		return false
	}
	return group.held()
}

func (g *Group) held() bool {
	return g.Object == nil || len(g.pods) < g.MinCount() || g.gated > 0
}

// Of returns the group of a pod, nil if it has none.
func (g *Groups) Of(pod *corev1.Pod) *Group {
	key, ok := KeyOf(pod)
	if !ok {
		return nil
	}
	return g.groups[key]
}

// Get returns the group of a PodGroup, nil if there is none.
func (g *Groups) Get(object *schedulingv1beta1.PodGroup) *Group {
	return g.groups[nameOf(object)]
}

// MinCount returns how many pods of a gang must get a node at the same time. It is 1 for a group
// of another policy, whose pods get one independently of each other.
func (g *Group) MinCount() int {
	if policy := g.Object.Spec.SchedulingPolicy.Gang; policy != nil {
		return int(policy.MinCount)
	}
	return 1
}

// Scheduled returns the number of pods that have a node.
func (g *Group) Scheduled() int { return g.scheduled }

// Pending returns the pods without a node, the oldest first.
func (g *Group) Pending() []*corev1.Pod {
	var pending []*corev1.Pod
	for _, pod := range g.pods {
		if pod.Spec.NodeName == "" {
			pending = append(pending, pod)
		}
	}
	slices.SortFunc(pending, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return pending
}

// Validate returns an error if one of the pods is at variance with its group or with the first of
// them, in the words of kube-scheduler.
func (g *Group) Validate(pods ...*corev1.Pod) error {
	priority := ptr.Deref(g.Object.Spec.Priority, 0)
	for _, pod := range pods {
		first := pods[0]
		policy, firstPolicy := preemptionPolicy(pod), preemptionPolicy(first)
		switch own := ptr.Deref(pod.Spec.Priority, 0); {
		case pod.Spec.SchedulerName != first.Spec.SchedulerName:
			return fmt.Errorf("all pods in a single pod group should have the same .spec.schedulerName set, got: %q and %q", pod.Spec.SchedulerName, first.Spec.SchedulerName)
		case own != priority:
			return fmt.Errorf("all pods in a single pod group should have the same priority as the pod group's priority, got %d and %d", own, priority)
		case policy != firstPolicy:
			return fmt.Errorf("all pods in a single pod group should have the same preemption policy, got %v and %v", policy, firstPolicy)
		}
	}
	return nil
}

// All returns all pods, those without a node first.
func (g *Group) All() []*corev1.Pod {
	all := g.Pending()
	for _, pod := range g.pods {
		if pod.Spec.NodeName != "" {
			all = append(all, pod)
		}
	}
	return all
}

func preemptionPolicy(pod *corev1.Pod) corev1.PreemptionPolicy {
	return ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority)
}

// Unschedulable is what kube-scheduler says of a group that has too few pods without a node, or
// enough with a node and none that fits, and of its pods that do.
const Unschedulable = "pod group is unschedulable"

// Infeasible returns why a group cannot be complete, in the words of kube-scheduler: scheduled of
// its pods have a node, and remaining ones may get one. It is empty if it can.
func Infeasible(minCount, scheduled, remaining int) string {
	if scheduled+remaining >= minCount {
		return ""
	}
	return fmt.Sprintf("minCount (%d) cannot be satisfied: %d scheduled, %d remaining", minCount, scheduled, remaining)
}
