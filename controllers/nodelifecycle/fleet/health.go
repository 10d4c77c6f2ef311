package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Posted are the conditions that a node posts, and of which nobody knows
// whether they hold when it is dead.
func Posted() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
}

// allUnknown tells whether all that a node posts is Unknown.
func allUnknown(n *corev1.Node) bool {
	return !slices.ContainsFunc(Posted(), func(t corev1.NodeConditionType) bool {
		c := condition(n, t)
		return c == nil || c.Status != corev1.ConditionUnknown
	})
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// evictionTaint is the key of the NoExecute taint for a status of the condition
// Ready. A node that has never told (the empty status) gets none.
func evictionTaint(ready corev1.ConditionStatus) string {
	switch ready {
	case corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	default:
		return ""
	}
}

// hasEvictionTaint tells whether the node has a NoExecute taint for its health.
func hasEvictionTaint(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, IsEvictionTaint)
}

// IsEvictionTaint tells whether the taint is one that a node gets for its
// health, and that evicts its pods.
func IsEvictionTaint(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// excluded tells whether the node's health says nothing about its zone's.
func excluded(n *corev1.Node) bool {
	_, ok := n.Labels["node.kubernetes.io/exclude-disruption"]
	return ok
}
