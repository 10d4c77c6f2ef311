package pods

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetCondition sets a condition in the pod's status, and reports whether it has
// changed. The condition gets the pod's generation (KEP-5067), and now as the time
// of its transition if its status has changed.
func SetCondition(pod *corev1.Pod, c corev1.PodCondition, now time.Time) bool {
	c.ObservedGeneration = pod.Generation
	c.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return true
	}
	old := &pod.Status.Conditions[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	changed := old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message
	*old = c
	return changed
}
