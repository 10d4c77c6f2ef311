package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/pods"
)

// garbage tells whether the pod is to go at once since no node agent will ever
// end it. node is nil if the pod has none, or none that is known.
func garbage(pod *corev1.Pod, node *corev1.Node) bool {
	return isUnscheduledTerminating(pod) || isOutOfService(pod, node)
}

// isUnscheduledTerminating: no node agent ends a pod that has no node.
func isUnscheduledTerminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// isOutOfService: the node agent is silent, and whoever tainted the node has
// made sure that nothing runs there (KEP-2268).
func isOutOfService(pod *corev1.Pod, node *corev1.Node) bool {
	return pod.DeletionTimestamp != nil && node != nil && outOfService(node)
}

// outOfService tells whether nothing runs on the node for certain.
func outOfService(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// excess are those of the ended pods that are more than threshold: evicted ones
// first, since no controller waits for them, and then the oldest. It sorts what
// it gets.
func excess(ended []*corev1.Pod, threshold int) []*corev1.Pod {
	if len(ended) <= threshold {
		return nil
	}
	slices.SortFunc(ended, func(a, b *corev1.Pod) int {
		if a, b := isEvicted(a), isEvicted(b); a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return ended[:len(ended)-threshold]
}

// isEvicted tells whether the node agent has evicted the pod.
func isEvicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

// endedNow is by how much the number of ended pods grows when a pod changes; nil
// is a pod that does not exist.
func endedNow(before, after *corev1.Pod) int {
	count := func(pod *corev1.Pod) int {
		if pod != nil && pods.IsTerminal(pod) {
			return 1
		}
		return 0
	}
	return count(after) - count(before)
}
