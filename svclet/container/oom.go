package container

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/admit"
)

// The range of oom_score_adj, by QoS class: the kernel first kills processes with
// a higher score.
const (
	guaranteedOOMScoreAdjust = -997
	bestEffortOOMScoreAdjust = 1000
)

// systemNodeCritical is the priority class whose pods are killed last.
const systemNodeCritical = "system-node-critical"

// oomScoreAdjust returns a container's oom_score_adj. For burstable pods it is
// between the bounds: the more memory is requested, the lower it is, so that a
// container that exceeds its request is killed first.
func oomScoreAdjust(pod *corev1.Pod, container *corev1.Container, capacity int64) int64 {
	if admit.Critical(pod) && pod.Spec.PriorityClassName == systemNodeCritical {
		return guaranteedOOMScoreAdjust
	}
	switch podspec.QOSClassOf(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedOOMScoreAdjust
	case corev1.PodQOSBestEffort:
		return bestEffortOOMScoreAdjust
	}
	if capacity <= 0 {
		return bestEffortOOMScoreAdjust - 1
	}

	score := func(request int64) int64 { return 1000 - 1000*request/capacity }
	spare := sparePerContainer(pod)
	adjust := score(container.Resources.Requests.Memory().Value() + spare)
	if list, c := podspec.Find(&pod.Spec, container.Name); c != nil && podspec.IsSidecar(list, c) && len(pod.Spec.Containers) > 0 {
		// A sidecar must not be killed before the containers that depend on it.
		adjust = min(adjust, score(leastRequest(pod)+spare))
	}
	// Below the lower bound, guaranteed pods using all memory would have the same
	// score; above the upper bound are best-effort pods.
	return min(max(adjust, 1000+guaranteedOOMScoreAdjust), bestEffortOOMScoreAdjust-1)
}

// sparePerContainer returns the pod-level request beyond the containers' requests,
// divided among the containers (KEP-2837).
func sparePerContainer(pod *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requested := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	spare := pod.Spec.Resources.Requests.Memory().Value() - requested.Memory().Value()
	return spare / int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
}

// leastRequest returns the smallest memory request of the pod's regular
// containers.
func leastRequest(pod *corev1.Pod) int64 {
	least := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	for i := range pod.Spec.Containers[1:] {
		least = min(least, pod.Spec.Containers[i+1].Resources.Requests.Memory().Value())
	}
	return least
}
