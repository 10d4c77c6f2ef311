package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

// setUnknown sets the conditions that nodes post to Unknown.
func setUnknown(n *corev1.Node, now time.Time) {
	for _, t := range fleet.Posted() {
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
		if i < 0 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: metav1.NewTime(now),
			})
			continue
		}
		if c := &n.Status.Conditions[i]; c.Status != corev1.ConditionUnknown {
			c.Status, c.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(now)
			c.Reason, c.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
		}
	}
}

// readiness returns the status of the condition Ready, or "" if there is none.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// conditionTaints returns the keys of the NoSchedule taints by condition and
// status.
func conditionTaints() map[corev1.NodeConditionType]map[corev1.ConditionStatus]string {
	return map[corev1.NodeConditionType]map[corev1.ConditionStatus]string{
		corev1.NodeReady: {
			corev1.ConditionFalse:   corev1.TaintNodeNotReady,
			corev1.ConditionUnknown: corev1.TaintNodeUnreachable,
		},
		corev1.NodeMemoryPressure:     {corev1.ConditionTrue: corev1.TaintNodeMemoryPressure},
		corev1.NodeDiskPressure:       {corev1.ConditionTrue: corev1.TaintNodeDiskPressure},
		corev1.NodePIDPressure:        {corev1.ConditionTrue: corev1.TaintNodePIDPressure},
		corev1.NodeNetworkUnavailable: {corev1.ConditionTrue: corev1.TaintNodeNetworkUnavailable},
	}
}

// managed reports whether this controller is the only writer of such a taint.
func managed(t corev1.Taint) bool {
	if t.Effect != corev1.TaintEffectNoSchedule {
		return fleet.IsEvictionTaint(t)
	}
	if t.Key == corev1.TaintNodeUnschedulable {
		return true
	}
	for _, keys := range conditionTaints() {
		for _, key := range keys {
			if key == t.Key {
				return true
			}
		}
	}
	return false
}

// setTaints sets the managed taints of the node to those of its conditions and of
// cordoning, and the NoExecute taint with the key evicting, if that is not empty.
// It reports whether the taints have changed.
func setTaints(n *corev1.Node, evicting string, now time.Time) bool {
	var want []corev1.Taint
	byStatus := conditionTaints()
	for _, c := range n.Status.Conditions {
		if key := byStatus[c.Type][c.Status]; key != "" {
			want = append(want, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if n.Spec.Unschedulable {
		want = append(want, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if evicting != "" {
		want = append(want, corev1.Taint{Key: evicting, Effect: corev1.TaintEffectNoExecute})
	}
	has := func(taints []corev1.Taint, t corev1.Taint) bool {
		return slices.ContainsFunc(taints, func(other corev1.Taint) bool { return other.MatchTaint(&t) })
	}
	var taints []corev1.Taint
	for _, t := range n.Spec.Taints {
		if !managed(t) || has(want, t) {
			taints = append(taints, t)
		}
	}
	changed := len(taints) != len(n.Spec.Taints)
	for _, t := range want {
		if !has(taints, t) {
			t.TimeAdded = &metav1.Time{Time: now}
			taints = append(taints, t)
			changed = true
		}
	}
	n.Spec.Taints = taints
	return changed
}

// setLabels copies the labels of operating system and architecture to their beta
// names, which clients may still use. It reports whether the labels have changed.
func setLabels(n *corev1.Node) bool {
	changed := false
	for _, names := range [][2]string{
		{corev1.LabelOSStable, "beta.kubernetes.io/os"},
		{corev1.LabelArchStable, "beta.kubernetes.io/arch"},
	} {
		value, ok := n.Labels[names[0]]
		former, had := n.Labels[names[1]]
		if ok && (!had || former != value) {
			n.Labels[names[1]] = value
			changed = true
		}
	}
	return changed
}
