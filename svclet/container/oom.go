package container

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/podspec"
)

// The bounds of oom_score_adj, by classes of service: the kernel kills first
// what has the higher score.
const (
	guaranteedOOMScoreAdjust = -997
	bestEffortOOMScoreAdjust = 1000
)

// systemNodeCritical is the priority class whose pods are killed last.
const systemNodeCritical = "system-node-critical"

// oomScoreAdjust is a container's oom_score_adj. Those of burstable pods lie
// between the bounds: the more memory they ask for, the lower, so that who
// uses more than it has asked for is killed first.
func oomScoreAdjust(pod *corev1.Pod, container *corev1.Container, capacity int64) int64 {
	if admit.Critical(pod) && pod.Spec.PriorityClassName == systemNodeCritical {
		return guaranteedOOMScoreAdjust
	}
	switch qos.GetPodQOS(pod) {
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
		// A sidecar is not to be killed before the containers that it serves.
		adjust = min(adjust, score(leastRequest(pod)+spare))
	}
	// Below, guaranteed pods using all memory would reach the same score;
	// above, best-effort ones have it.
	return min(max(adjust, 1000+guaranteedOOMScoreAdjust), bestEffortOOMScoreAdjust-1)
}

// sparePerContainer is what a pod asks for beyond its containers' requests,
// shared among them (KEP-2837).
func sparePerContainer(pod *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requested := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	spare := pod.Spec.Resources.Requests.Memory().Value() - requested.Memory().Value()
	return spare / int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
}

// leastRequest is the smallest memory request of the pod's regular containers.
func leastRequest(pod *corev1.Pod) int64 {
	least := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	for i := range pod.Spec.Containers[1:] {
		least = min(least, pod.Spec.Containers[i+1].Resources.Requests.Memory().Value())
	}
	return least
}
