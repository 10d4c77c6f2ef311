package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/pods"
)

// garbage reports whether the pod is to be deleted at once because no node agent
// will ever terminate it. node is nil if the pod is not bound or its node is
// missing.
func garbage(pod *corev1.Pod, node *corev1.Node) bool {
	return isUnscheduledTerminating(pod) || isOutOfService(pod, node)
}

// isUnscheduledTerminating reports whether the pod is terminating and not bound.
func isUnscheduledTerminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// isOutOfService reports whether the pod is terminating on a node that is out of
// service.
func isOutOfService(pod *corev1.Pod, node *corev1.Node) bool {
	return pod.DeletionTimestamp != nil && node != nil && outOfService(node)
}

// outOfService reports whether the node is not ready and has the out-of-service
// taint, by which an administrator confirms that nothing runs there (KEP-2268).
func outOfService(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// excess returns those of the terminated pods that exceed the threshold: evicted
// pods first, because no controller waits for them, and then the oldest. It sorts
// its argument.
func excess(terminated []*corev1.Pod, threshold int) []*corev1.Pod {
	if len(terminated) <= threshold {
		return nil
	}
	slices.SortFunc(terminated, func(a, b *corev1.Pod) int {
		if a, b := isEvicted(a), isEvicted(b); a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return terminated[:len(terminated)-threshold]
}

// isEvicted reports whether the node agent has evicted the pod.
func isEvicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

// terminatedGrowth returns by how much an event of a pod changes the number of
// terminated pods; nil is a pod that does not exist.
func terminatedGrowth(before, after *corev1.Pod) int {
	count := func(pod *corev1.Pod) int {
		if pod != nil && pods.IsTerminal(pod) {
			return 1
		}
		return 0
	}
	return count(after) - count(before)
}
