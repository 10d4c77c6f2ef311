package devices

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pods is the resource of consumers that are pods.
const pods = "pods"

// Consumer returns the entry of a pod in a claim's status.reservedFor.
func Consumer(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: pods, Name: pod.Name, UID: pod.UID}
}

// IsReservedFor reports whether a pod, by its UID, is a consumer of a claim.
func IsReservedFor(claim *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool { return c.UID == pod })
}

// IsReservedForOthers reports whether a claim has a consumer other than a pod.
func IsReservedForOthers(claim *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool { return c.UID != pod })
}

// IsPod reports whether a consumer of a claim is a pod.
func IsPod(c resourcev1.ResourceClaimConsumerReference) bool {
	return c.APIGroup == corev1.GroupName && c.Resource == pods
}
