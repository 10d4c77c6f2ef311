package podspec

import corev1 "k8s.io/api/core/v1"

// PodLimits returns the limits of a pod as a whole (KEP-2837); nil if it has none.
func PodLimits(pod *corev1.Pod) corev1.ResourceList {
	if pod.Spec.Resources == nil {
		return nil
	}
	return pod.Spec.Resources.Limits
}

// ComputeLimits returns the limits of CPU and memory of a container, those of its pod as a
// whole where it has none itself (KEP-2837). 0 is no limit.
func ComputeLimits(container, pod corev1.ResourceList) corev1.ResourceList {
	limits := make(corev1.ResourceList, 2)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := container[name]
		if limit.IsZero() {
			limit = pod[name]
		}
		limits[name] = limit
	}
	return limits
}
