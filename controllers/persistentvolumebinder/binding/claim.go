package binding

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// ClaimState is what a plan for a claim is made from.
type ClaimState struct {
	Claim *corev1.PersistentVolumeClaim
	// Volume is the one that spec.volumeName names, nil if it does not exist.
	Volume *corev1.PersistentVolume
	// Candidates are the volumes that name the claim, and the one that it took from the
	// stock.
	Candidates []*corev1.PersistentVolume
	// Class is the claim's, nil if it has none or it does not exist. Default is the
	// default class, nil if there is none.
	Class, Default *storagev1.StorageClass
	// Waiting is a pod without a node that uses the claim, nil if there is none.
	Waiting *corev1.Pod
}

// Event is an event to record; one without a reason is none.
type Event struct{ Type, Reason, Message string }

func normal(reason, message string) Event  { return Event{corev1.EventTypeNormal, reason, message} }
func warning(reason, message string) Event { return Event{corev1.EventTypeWarning, reason, message} }

// ClaimPlan is what to do for a claim. Zero fields change nothing.
type ClaimPlan struct {
	// Class is the class to set.
	Class string
	// Bind is the volume to bind the claim to.
	Bind *corev1.PersistentVolume
	// Provisioner is the one that makes the volume, with which the claim is
	// annotated.
	Provisioner string
	// Phase is the one to set, if the claim is not bound now.
	Phase corev1.PersistentVolumeClaimPhase
	Event Event
}

// Claim returns the plan for a claim.
func Claim(s ClaimState) ClaimPlan {
	_, bound := s.Claim.Annotations[volume.AnnBindCompleted]
	switch {
	case bound:
		return boundClaim(s)
	case s.Claim.DeletionTimestamp != nil:
		return ClaimPlan{}
	case s.Claim.Spec.VolumeName != "":
		return namingClaim(s)
	}
	return unboundClaim(s)
}

// boundClaim repairs the binding of a claim, unless its volume is lost.
func boundClaim(s ClaimState) ClaimPlan {
	lost := func(reason, message string) ClaimPlan {
		if s.Claim.Status.Phase == corev1.ClaimLost {
			return ClaimPlan{}
		}
		return ClaimPlan{Phase: corev1.ClaimLost, Event: warning(reason, message)}
	}
	switch {
	case s.Claim.Spec.VolumeName == "":
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case s.Volume == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case s.Volume.Spec.ClaimRef == nil || s.Volume.Spec.ClaimRef.UID == s.Claim.UID:
		return ClaimPlan{Bind: s.Volume}
	}
	return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

// namingClaim binds a claim to the volume that it names.
func namingClaim(s ClaimState) ClaimPlan {
	pending := ClaimPlan{Phase: corev1.ClaimPending}
	switch {
	case s.Volume == nil:
	case s.Volume.Spec.ClaimRef == nil:
		if why := mismatch(s.Claim, s.Volume); why != "" {
			pending.Event = warning("VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", s.Volume.Name, why))
			return pending
		}
		return ClaimPlan{Bind: s.Volume}
	case volume.IsVolumeBoundToClaim(s.Volume, s.Claim):
		return ClaimPlan{Bind: s.Volume}
	default:
		pending.Event = warning("FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", s.Volume.Name))
	}
	return pending
}

// mismatch returns why a volume cannot be that of a claim which names it.
func mismatch(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) string {
	requested, size := claim.Spec.Resources.Requests[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case pv.DeletionTimestamp != nil:
		return "the volume is marked for deletion"
	case size.Cmp(requested) < 0:
		return "requested PV is too small"
	case volume.GetPersistentVolumeClass(pv) != volume.GetPersistentVolumeClaimClass(claim):
		return "storageClassName does not match"
	case ptr.Deref(pv.Spec.VolumeAttributesClassName, "") != ptr.Deref(claim.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case volume.CheckVolumeModeMismatches(&claim.Spec, &pv.Spec):
		return "incompatible volumeMode"
	case !volume.CheckAccessModes(claim, pv):
		return "incompatible accessMode"
	}
	return ""
}

// Delays reports whether the claims of a class are bound only to a volume that is reserved
// for them: the scheduler chooses it for the node of the pod that uses the claim. class is
// nil for a claim without one.
func Delays(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// unboundClaim binds a claim to a volume that matches, or requests one.
func unboundClaim(s ClaimState) ClaimPlan {
	delayed := Delays(s.Class)
	// With a node, the scheduler has found no volume there: one is provisioned.
	_, selected := s.Claim.Annotations[volume.AnnSelectedNode]
	waits := delayed && !selected
	pv, err := match(s, delayed)
	plan := ClaimPlan{Phase: corev1.ClaimPending}
	class := volume.GetPersistentVolumeClaimClass(s.Claim)
	switch {
	case err != nil:
		plan.Event = warning("FailedBinding", err.Error())
	case pv != nil:
		return ClaimPlan{Bind: pv}
	case !volume.PersistentVolumeClaimHasClass(s.Claim) && s.Default != nil:
		plan.Class = s.Default.Name
	case waits && s.Waiting != nil:
		plan.Event = normal("WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", s.Waiting.Name))
	case waits:
		plan.Event = normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case class == "":
		plan.Event = normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case s.Class == nil:
		plan.Event = warning("ProvisioningFailed", fmt.Sprintf("storageclass.storage.k8s.io %q not found", class))
	case s.Class.Provisioner == volume.NotSupportedProvisioner:
		plan.Event = warning("ProvisioningFailed", fmt.Sprintf("no volume plugin matched name: %s: storage class %q provisions no volumes: create one that matches the claim", s.Class.Provisioner, class))
	default:
		if s.Claim.Annotations[volume.AnnStorageProvisioner] != s.Class.Provisioner {
			plan.Provisioner = s.Class.Provisioner // else it is requested already
		}
		plan.Event = normal("ExternalProvisioning", fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", s.Class.Provisioner))
	}
	return plan
}

// match returns the volume that a claim is bound to: one that is reserved for it, or
// the one that it took. A claim that waits for a consumer is bound only to a reserved
// one.
func match(s ClaimState, delayed bool) (*corev1.PersistentVolume, error) {
	var matching []*corev1.PersistentVolume
	for _, pv := range s.Candidates {
		if volume.CheckAccessModes(s.Claim, pv) {
			matching = append(matching, pv)
		}
	}
	return volume.FindMatchingVolume(s.Claim, matching, nil, nil, delayed, true)
}

// Default returns the class that claims without one get: of several the newest, and
// of those that are equally new the first by name.
func Default(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var found *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations[defaultAnnotation] != "true" && class.Annotations[betaDefaultAnnotation] != "true" {
			continue
		}
		if found == nil || cmp.Or(class.CreationTimestamp.Compare(found.CreationTimestamp.Time), strings.Compare(found.Name, class.Name)) > 0 {
			found = class
		}
	}
	return found
}

// The annotations of default classes.
const (
	defaultAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)
