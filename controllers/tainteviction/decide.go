package tainteviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/controllers/pods"
)

// noExecute returns the taints that pods must tolerate to stay on the node.
func noExecute(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, t)
		}
	}
	return taints
}

// evictAt returns when the pod is evicted from a node with the taints, all of
// which are NoExecute. ok is false if it is not evicted. A pod that does not
// tolerate one of the taints is evicted at once, which is the zero time.
//
// The tolerationSeconds count from the time when the taint was added, or when the
// pod was bound if that was later. For each taint, the first toleration of the
// pod that matches it decides.
func evictAt(pod *corev1.Pod, taints []corev1.Taint, added func(corev1.Taint) time.Time) (at time.Time, ok bool) {
	for _, taint := range taints {
		i := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), &taint, true)
		})
		if i < 0 {
			return time.Time{}, true
		}
		seconds := pod.Spec.Tolerations[i].TolerationSeconds
		if seconds == nil {
			continue
		}
		if *seconds <= 0 {
			return time.Time{}, true
		}
		since := added(taint)
		if bound := boundAt(pod); bound.After(since) {
			since = bound
		}
		if until := since.Add(time.Duration(*seconds) * time.Second); !ok || until.Before(at) {
			at, ok = until, true
		}
	}
	return at, ok
}

// boundAt returns when the pod was bound, or created if it has no such condition.
func boundAt(pod *corev1.Pod) time.Time {
	if c := pods.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}
