package binding

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
)

// VolumeState is what a plan for a volume is made from.
type VolumeState struct {
	Volume *corev1.PersistentVolume
	// Claim is the one that spec.claimRef names with its UID, nil if it does not
	// exist any more.
	Claim *corev1.PersistentVolumeClaim
}

// VolumePlan is what to do for a volume. Zero fields change nothing.
type VolumePlan struct {
	// Unbind removes the claim reference or, if a user has made it, its UID.
	Unbind  bool
	Phase   corev1.PersistentVolumePhase
	Message string
	// SyncClaim requests a sync of the claim, which completes the binding.
	SyncClaim bool
	Event     Event
}

// Volume returns the plan for a volume.
func Volume(s VolumeState) VolumePlan {
	ref := s.Volume.Spec.ClaimRef
	switch {
	case ref == nil:
		return VolumePlan{Phase: corev1.VolumeAvailable}
	case ref.UID == "": // reserved by a user
		return VolumePlan{Phase: corev1.VolumeAvailable, SyncClaim: true}
	case s.Claim == nil:
		return reclaim(s.Volume)
	case s.Claim.Spec.VolumeName == s.Volume.Name:
		return VolumePlan{Phase: corev1.VolumeBound}
	case s.Claim.Spec.VolumeName != "":
		return surplus(s.Volume)
	case volume.CheckVolumeModeMismatches(&s.Claim.Spec, &s.Volume.Spec):
		return VolumePlan{Event: warning("VolumeMismatch",
			fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", s.Claim.Name))}
	}
	return VolumePlan{SyncClaim: true}
}

// surplus is the plan for a volume whose claim is bound to another one: one that was
// provisioned for the claim is of no use, others become available.
func surplus(pv *corev1.PersistentVolume) VolumePlan {
	if _, provisioned := pv.Annotations[volume.AnnDynamicallyProvisioned]; provisioned && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return reclaim(pv)
	}
	return VolumePlan{Unbind: true, Phase: corev1.VolumeAvailable}
}

// reclaim is the plan for a volume whose claim was deleted. A provisioner deletes its
// volumes itself once they are released.
func reclaim(pv *corev1.PersistentVolume) VolumePlan {
	if pv.Status.Phase != corev1.VolumeReleased && pv.Status.Phase != corev1.VolumeFailed {
		return VolumePlan{Phase: corev1.VolumeReleased}
	}
	failed := func(reason, message string) VolumePlan {
		if pv.Status.Phase == corev1.VolumeFailed && pv.Status.Message == message {
			return VolumePlan{}
		}
		return VolumePlan{Phase: corev1.VolumeFailed, Message: message, Event: warning(reason, message)}
	}
	_, provisioned := pv.Annotations[volume.AnnDynamicallyProvisioned]
	switch policy := pv.Spec.PersistentVolumeReclaimPolicy; {
	case policy == corev1.PersistentVolumeReclaimRetain, policy == corev1.PersistentVolumeReclaimDelete && provisioned:
		return VolumePlan{}
	case policy == corev1.PersistentVolumeReclaimDelete:
		return failed("VolumeFailedDelete", fmt.Sprintf("error getting deleter volume plugin for volume %q: no volume plugin matched: no provisioner has made it: delete its data and the PersistentVolume", pv.Name))
	case policy == corev1.PersistentVolumeReclaimRecycle:
		return failed("VolumeFailedRecycle", "No recycler found for the volume: svc does not recycle volumes: delete its data and the PersistentVolume, and create it again")
	default:
		return failed("VolumeUnknownReclaimPolicy", fmt.Sprintf("Volume has unrecognized PersistentVolumeReclaimPolicy: %s", policy))
	}
}
