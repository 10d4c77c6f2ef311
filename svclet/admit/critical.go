package admit

import corev1 "k8s.io/api/core/v1"

// Annotations by which agents mark pods.
const (
	// SourceAnnotation says where the node has a pod from: "api", "file" or
	// "http".
	SourceAnnotation = "kubernetes.io/config.source"
	// MirrorAnnotation marks the API's picture of a static pod.
	MirrorAnnotation = "kubernetes.io/config.mirror"

	sourceAPI = "api"
)

// systemCriticalPriority is that of the class system-cluster-critical; those
// above are system-node-critical.
const systemCriticalPriority = 2_000_000_000

// Static says whether a pod comes from the node itself, not from the API.
func Static(pod *corev1.Pod) bool {
	source, marked := pod.Annotations[SourceAnnotation]
	return marked && source != sourceAPI
}

// Critical says whether a pod must run even at the cost of others: static pods,
// and those of the system's priority classes.
func Critical(pod *corev1.Pod) bool {
	if Static(pod) {
		return true
	}
	if _, mirror := pod.Annotations[MirrorAnnotation]; mirror {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}
