package pod

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/podspec"
)

// qosOf returns the pod's quality of service: Guaranteed if every container (or
// the pod as a whole) has limits of CPU and memory that its requests equal,
// BestEffort if none asks for either.
func qosOf(pod *corev1.Pod) corev1.PodQOSClass {
	if q := pod.Status.QOSClass; q != "" {
		return q
	}
	var all []*corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && asks(r) {
		all = append(all, r)
	} else {
		for _, c := range podspec.Lasting(&pod.Spec) {
			all = append(all, &c.Resources)
		}
	}
	any, guaranteed := false, true
	for _, r := range all {
		any = any || asks(r)
		guaranteed = guaranteed && isGuaranteed(r)
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

var qosResources = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

func asks(r *corev1.ResourceRequirements) bool {
	for _, name := range qosResources {
		request, limit := r.Requests[name], r.Limits[name]
		if !request.IsZero() || !limit.IsZero() {
			return true
		}
	}
	return false
}

func isGuaranteed(r *corev1.ResourceRequirements) bool {
	for _, name := range qosResources {
		limit := r.Limits[name]
		request, ok := r.Requests[name]
		if limit.IsZero() || ok && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}
