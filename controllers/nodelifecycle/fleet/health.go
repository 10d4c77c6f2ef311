package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Posted returns the conditions that node agents post, which become Unknown when
// the node is unreachable.
func Posted() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
}

// allUnknown reports whether all conditions that the node posts are Unknown.
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

// evictionTaint returns the key of the NoExecute taint for a status of the
// condition Ready. There is none for a node without the condition.
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

// hasEvictionTaint reports whether the node has a NoExecute taint for its health.
func hasEvictionTaint(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, IsEvictionTaint)
}

// IsEvictionTaint reports whether the taint is a NoExecute taint for the health of
// a node.
func IsEvictionTaint(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// excluded reports whether the node does not count in the health of its zone.
func excluded(n *corev1.Node) bool {
	_, ok := n.Labels["node.kubernetes.io/exclude-disruption"]
	return ok
}
