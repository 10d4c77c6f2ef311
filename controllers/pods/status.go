package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// IsTerminal tells whether all containers of the pod have ended for good.
func IsTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsActive tells whether the pod runs or may run, and is to go on.
func IsActive(pod *corev1.Pod) bool { return !IsTerminal(pod) && pod.DeletionTimestamp == nil }

// IsTerminating tells whether the pod runs still though it is being deleted.
func IsTerminating(pod *corev1.Pod) bool { return !IsTerminal(pod) && pod.DeletionTimestamp != nil }

// Condition is the pod's condition of that type, or nil.
func Condition(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == name {
			return c
		}
	}
	return nil
}

// IsReady tells whether the pod is ready.
func IsReady(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ReadyAt is since when the pod is ready; zero if it is not or does not tell.
func ReadyAt(pod *corev1.Pod) time.Time {
	if c := Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// IsAvailable tells whether the pod has been ready for minReadySeconds. If it
// has not, but is ready and will have been if nothing happens, then in is the
// time until that; otherwise in is zero.
func IsAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) (available bool, in time.Duration) {
	if !IsReady(pod) {
		return false, 0
	}
	if minReadySeconds == 0 {
		return true, 0
	}
	since := ReadyAt(pod)
	if since.IsZero() {
		return false, 0
	}
	in = since.Add(time.Duration(minReadySeconds) * time.Second).Sub(now)
	return in <= 0, max(in, 0)
}
