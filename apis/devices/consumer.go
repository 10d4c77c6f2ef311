package devices

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// pods is the resource of consumers that are pods.
const pods = "pods"

// Consumer returns the entry of a pod in a claim's status.reservedFor.
func Consumer(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: pods, Name: pod.Name, UID: pod.UID}
}

// IsPod reports whether a consumer of a claim is a pod.
func IsPod(c resourcev1.ResourceClaimConsumerReference) bool {
	return c.APIGroup == corev1.GroupName && c.Resource == pods
}
