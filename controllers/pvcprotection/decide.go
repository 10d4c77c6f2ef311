package pvcprotection

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"svc.dev/svc/controllers/controller"
)

// finalizer is the one that protects claims.
const finalizer = "kubernetes.io/pvc-protection"

// need is what a claim needs, as far as the claim itself tells.
type need string

const (
	nothing    need = ""
	protection need = "protection" // the finalizer is missing
	release    need = "release"    // it is being deleted: the finalizer goes when it is not in use
)

// needs are what the claim needs.
func needs(claim *corev1.PersistentVolumeClaim) need {
	has := controllerutil.ContainsFinalizer(claim, finalizer)
	switch {
	case claim.DeletionTimestamp == nil && !has:
		return protection
	case claim.DeletionTimestamp != nil && has:
		return release
	default:
		return nothing
	}
}

// byNeed finds the claims that need something.
func byNeed() controller.Index {
	return controller.Index{Name: "protection-need", Object: &corev1.PersistentVolumeClaim{}, Values: func(obj client.Object) []string {
		if n := needs(obj.(*corev1.PersistentVolumeClaim)); n != nothing {
			return []string{someNeed}
		}
		return nil
	}}
}

// someNeed is the value of byNeed.
const someNeed = "true"

// uses tells whether the pod uses the claim. A pod that no node knows does not:
// a node does not start pods with claims that are being deleted. A pod that has
// ended does as long as it exists, since its volumes may be mounted still.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
			return true
		}
		// A pod that waits for the end of its own claim, and a claim that waits
		// for the end of its pod, would wait for ever.
		if v.Ephemeral != nil && !shutDown(pod) && ephemeral.VolumeClaimName(pod, v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil {
			return true
		}
	}
	return false
}

// shutDown tells whether the node is done with the pod, or somebody who deleted
// it by force says so: nothing but finalizers holds it.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// hasClaims tells whether the pod has volumes of claims.
func hasClaims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}
