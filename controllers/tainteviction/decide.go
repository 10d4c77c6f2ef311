package tainteviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/controllers/pods"
)

// noExecute are the taints that pods must tolerate to stay on a node.
func noExecute(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, t)
		}
	}
	return taints
}

// evictAt is when the pod is to leave a node with the taints, which are all
// NoExecute. ok is false if it need not. A pod that does not tolerate a taint, or
// not for any time, leaves at once: that is the zero time.
//
// The time that a toleration gives begins when the taint was added, or when the
// pod was bound if that was later. The first of a pod's tolerations that matches
// a taint counts.
func evictAt(pod *corev1.Pod, taints []corev1.Taint, added func(corev1.Taint) time.Time) (at time.Time, ok bool) {
	for _, taint := range taints {
		i := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), &taint, false)
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

// boundAt is when the pod got its node, as far as it tells.
func boundAt(pod *corev1.Pod) time.Time {
	if c := pods.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}
