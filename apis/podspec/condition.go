package podspec

import corev1 "k8s.io/api/core/v1"

// Condition returns the condition of the type in a pod's status, nil if there
// is none. It is the status' own, not a copy.
func Condition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// IsConditionTrue reports whether the condition of the type is true.
func IsConditionTrue(s *corev1.PodStatus, t corev1.PodConditionType) bool {
	c := Condition(s, t)
	return c != nil && c.Status == corev1.ConditionTrue
}
