package admit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// ResizeOptions are what a resize depends on besides the Node object.
type ResizeOptions struct {
	// StaticCPUs and StaticMemory report that guaranteed pods have CPUs, or memory of
	// NUMA nodes, of their own (--cpu-manager-policy, --memory-manager-policy).
	StaticCPUs, StaticMemory bool
}

// Resize decides whether the node allocates the CPU and memory of a pod, which runs
// as allocated, in addition to its other active pods; nil means that it does. The
// reason is corev1.PodReasonInfeasible if the node never can, and otherwise
// corev1.PodReasonDeferred.
func Resize(pod, allocated *corev1.Pod, others []*corev1.Pod, node *corev1.Node, o ResizeOptions) *Refusal {
	infeasible := func(format string, args ...any) *Refusal {
		return &Refusal{Reason: corev1.PodReasonInfeasible, Message: fmt.Sprintf(format, args...)}
	}
	if Static(pod) {
		return infeasible("In-place resize of static-pods is not supported")
	}
	if podspec.QOSClassOf(pod) == corev1.PodQOSGuaranteed {
		switch {
		case o.StaticCPUs && changes(corev1.ResourceCPU, pod, allocated):
			return infeasible("Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy")
		case o.StaticMemory && changes(corev1.ResourceMemory, pod, allocated):
			return infeasible("Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy")
		}
	}
	if node == nil {
		return &Refusal{Reason: corev1.PodReasonDeferred, Message: "Kubelet cannot get node info."}
	}
	wanted := requests(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if requested, capacity := amount(wanted, name), amount(node.Status.Allocatable, name); requested > capacity {
			return infeasible("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, requested, capacity)
		}
	}
	others = without(others, pod)
	for _, s := range shortages(pod, others, node) {
		if s.Resource == corev1.ResourceCPU || s.Resource == corev1.ResourceMemory {
			return &Refusal{Reason: corev1.PodReasonDeferred, Message: s.message()}
		}
	}
	return nil
}

// changes reports whether a container requests another amount of a resource than it has been
// allocated.
func changes(name corev1.ResourceName, pod, allocated *corev1.Pod) bool {
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		var has corev1.ResourceList
		if _, known := podspec.Find(&allocated.Spec, c.Name); known != nil {
			has = known.Resources.Requests
		}
		if !c.Resources.Requests[name].Equal(has[name]) {
			return true
		}
	}
	return false
}
