package admit

import corev1 "k8s.io/api/core/v1"

// Annotations by which agents mark pods.
const (
	// SourceAnnotation is the source of a pod: "api", "file" or "http".
	SourceAnnotation = "kubernetes.io/config.source"
	// MirrorAnnotation marks a mirror pod.
	MirrorAnnotation = "kubernetes.io/config.mirror"

	sourceAPI = "api"
)

// systemCriticalPriority is the priority of the class system-cluster-critical;
// that of system-node-critical is higher.
const systemCriticalPriority = 2_000_000_000

// Static reports whether a pod comes from the node itself and not from the API
// server.
func Static(pod *corev1.Pod) bool {
	source, marked := pod.Annotations[SourceAnnotation]
	return marked && source != sourceAPI
}

// Critical reports whether a pod may preempt others: static pods, and those of the
// system's priority classes.
func Critical(pod *corev1.Pod) bool {
	if Static(pod) {
		return true
	}
	if _, mirror := pod.Annotations[MirrorAnnotation]; mirror {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}
