package pods

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// IsTerminal reports whether the pod has terminated, in phase Succeeded or Failed.
func IsTerminal(pod *corev1.Pod) bool {
	return podspec.IsTerminal(pod.Status.Phase)
}

// NothingRuns reports whether the pod's status shows no container that runs: all are waiting or
// have terminated, init containers (of which sidecars run until last) and ephemeral ones too.
func NothingRuns(pod *corev1.Pod) bool {
	s := &pod.Status
	return !slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil && c.State.Waiting == nil
	})
}

// IsActive reports whether the pod has not terminated and is not being deleted.
func IsActive(pod *corev1.Pod) bool { return !IsTerminal(pod) && pod.DeletionTimestamp == nil }

// IsTerminating reports whether the pod is being deleted and has not terminated.
func IsTerminating(pod *corev1.Pod) bool { return !IsTerminal(pod) && pod.DeletionTimestamp != nil }

// Condition returns the pod's condition of that type, or nil.
func Condition(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	return podspec.Condition(&pod.Status, name)
}

// IsReady reports whether the pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return podspec.IsConditionTrue(&pod.Status, corev1.PodReady)
}

// ReadyAt returns since when the pod is ready. It is zero if the pod is not ready or
// the time is unknown.
func ReadyAt(pod *corev1.Pod) time.Time {
	if c := Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// IsAvailable reports whether the pod has been ready for minReadySeconds. If the pod
// is ready but not available yet, in is the time until it is; otherwise in is zero.
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
