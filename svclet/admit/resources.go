package admit

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// Shortage is a resource of which a node has too little for a pod: CPU in
// milli-CPU, others in their unit.
type Shortage struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Missing returns how much has to be freed.
func (s Shortage) Missing() int64 { return s.Requested - (s.Capacity - s.Used) }

func (s Shortage) message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.Resource, s.Requested, s.Used, s.Capacity)
}

// shortages compares a pod's requests with the node's allocatable resources minus
// the requests of the others: first the number of pods, then CPU, memory and
// storage, then the others by name.
func shortages(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) []Shortage {
	allocatable := node.Status.Allocatable
	var list []Shortage
	if capacity := allocatable.Pods().Value(); int64(len(others))+1 > capacity {
		list = append(list, Shortage{corev1.ResourcePods, 1, int64(len(others)), capacity})
	}
	requests := requests(withoutUnknown(pod, allocatable))
	used := map[corev1.ResourceName]int64{}
	for _, other := range others {
		for name, amount := range requestAmounts(other) {
			used[name] += amount
		}
	}
	for _, name := range inOrder(requests) {
		capacity := amount(allocatable, name)
		if requested := amount(requests, name); requested > 0 && requested > capacity-used[name] {
			list = append(list, Shortage{name, requested, used[name], capacity})
		}
	}
	return list
}

// requests returns the requests of a pod, but for those that a resource claim provides.
func requests(pod *corev1.Pod) corev1.ResourceList {
	if pod.Status.ExtendedResourceClaimStatus != nil {
		pod = withoutRequests(pod, func(container string, name corev1.ResourceName) bool { return podspec.IsClaimed(pod, container, name) })
	}
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

func requestAmounts(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	list := requests(pod)
	amounts := make(map[corev1.ResourceName]int64, len(list))
	for name := range list {
		amounts[name] = amount(list, name)
	}
	return amounts
}

func amount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

func inOrder(list corev1.ResourceList) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// withoutUnknown removes requests of extended resources that the node does not
// have: they belong to the cluster, not to the node.
func withoutUnknown(pod *corev1.Pod, allocatable corev1.ResourceList) *corev1.Pod {
	return withoutRequests(pod, func(_ string, name corev1.ResourceName) bool {
		_, offered := allocatable[name]
		return !offered && podspec.IsExtendedResource(name)
	})
}

// withoutRequests removes requests of containers.
func withoutRequests(pod *corev1.Pod, remove func(container string, name corev1.ResourceName) bool) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, container := range podspec.NonEphemeral(&pod.Spec) {
		maps.DeleteFunc(container.Resources.Requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return remove(container.Name, name) })
	}
	return pod
}
