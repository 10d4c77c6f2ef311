package volumeexpansion

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notRequired is the annotation of a claim whose volume its controller has expanded on its own.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// resizeStatus returns the state of the expansion of a claim's volume, empty if there is none.
func resizeStatus(claim *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

// recordsResize reports whether the resizer of a claim's volume records its state in the claim.
func recordsResize(claim *corev1.PersistentVolumeClaim) bool {
	return resizeStatus(claim) != "" || claim.Status.AllocatedResources != nil
}

// markInProgress sets the status of a claim whose volume the node is expanding.
func markInProgress(claim *corev1.PersistentVolumeClaim) {
	claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInProgress
}

// markFailed sets the status of a claim whose volume has not been expanded on the node, and the
// state of the expansion, unless that is empty.
func markFailed(claim *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus, failure error, now metav1.Time) {
	if state != "" {
		if claim.Status.AllocatedResourceStatuses == nil {
			claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
	}
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimNodeResizeError
	})
	claim.Status.Conditions = append(claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Message: "failed to expand pvc with " + failure.Error(),
	})
}

// resizeConditions are the conditions of a claim whose volume is being expanded.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// markExpanded sets the status of a claim whose volume has been expanded on the node.
func markExpanded(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	claim.Status.Capacity[corev1.ResourceStorage] = *pv.Spec.Capacity.Storage()
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(resizeConditions, c.Type)
	})
	delete(claim.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
}
