package pvcprotection

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// finalizer protects claims from deletion.
const finalizer = "kubernetes.io/pvc-protection"

// action is what to do with a claim's finalizer.
type action string

const (
	keep           action = "keep"
	add            action = "add"
	removeIfUnused action = "remove if no pod uses the claim"
)

// decide returns what to do with the claim's finalizer.
func decide(claim *corev1.PersistentVolumeClaim) action {
	has := controllerutil.ContainsFinalizer(claim, finalizer)
	switch {
	case claim.DeletionTimestamp == nil && !has:
		return add
	case claim.DeletionTimestamp != nil && has:
		return removeIfUnused
	default:
		return keep
	}
}

// uses reports whether the pod uses the claim. A pod that is not bound to a node
// does not, because node agents do not start pods with claims that are being
// deleted. A terminated pod does until it is deleted, because its volumes may
// still be mounted.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
			return true
		}
		// A pod that only waits for finalizers does not use its own claim. With
		// foreground deletion it waits for that claim's deletion.
		if v.Ephemeral != nil && !hasShutDown(pod) && ephemeral.VolumeClaimName(pod, v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil {
			return true
		}
	}
	return false
}

// hasShutDown reports whether the pod is being deleted with a grace period of 0:
// the node agent has confirmed its end, or it was force deleted, and only
// finalizers keep the object.
func hasShutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// hasClaims reports whether the pod has volumes of claims.
func hasClaims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}
