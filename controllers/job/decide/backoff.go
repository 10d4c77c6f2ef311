package decide

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

const (
	// firstBackoff is the time until a failed pod is replaced. It doubles with each
	// failure until maxBackoff.
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// Backoff delays the replacement of failed pods: by the number of pods that have
// failed since the last success, and the time of the last failure.
type Backoff struct {
	failures int
	last     time.Time
}

// after returns the backoff when more pods have terminated.
func (b Backoff) after(succeeded, failed []*corev1.Pod) Backoff {
	var success time.Time
	for _, pod := range succeeded {
		success = latest(success, finishedAt(pod))
	}
	if len(succeeded) > 0 {
		b = Backoff{}
	}
	for _, pod := range failed {
		if at := finishedAt(pod); len(succeeded) == 0 || at.After(success) {
			b.failures++
			b.last = latest(b.last, at)
		}
	}
	return b
}

// left returns the time until a pod may be created.
func (b Backoff) left(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	wait := firstBackoff
	for i := 1; i < b.failures && wait < maxBackoff; i++ {
		wait *= 2
	}
	return max(0, min(wait, maxBackoff)-now.Sub(b.last))
}

// finishedAt returns when a pod terminated. It falls back from the containers'
// end to the condition Ready, the deletion, and the creation of the pod.
func finishedAt(pod *corev1.Pod) time.Time {
	if at, ok := containersFinishedAt(pod); ok {
		return at
	}
	if c := pods.Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		// The timestamp is the end of the grace period.
		return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	return pod.CreationTimestamp.Time
}

// containersFinishedAt returns when the last container terminated, sidecars
// included; false if one of them has not.
func containersFinishedAt(pod *corev1.Pod) (last time.Time, ok bool) {
	statuses := slices.Clone(pod.Status.ContainerStatuses)
	for _, s := range pod.Status.InitContainerStatuses {
		if isSidecar(pod, s.Name) {
			statuses = append(statuses, s)
		}
	}
	for _, s := range statuses {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return time.Time{}, false
		}
		last = latest(last, s.State.Terminated.FinishedAt.Time)
	}
	return last, len(statuses) > 0
}

func isSidecar(pod *corev1.Pod, container string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == container && ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	})
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
