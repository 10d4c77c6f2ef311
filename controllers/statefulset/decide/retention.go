package decide

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Owners is a claim whose owner references change, so that the garbage collector
// deletes it with the set or with its pod, as the retention policy says (KEP-1847).
type Owners struct {
	Claim *corev1.PersistentVolumeClaim
	// References are all owner references that the claim has to have.
	References []metav1.OwnerReference
}

// deletesClaims returns the retention policy of the set's claims.
func (s *State) deletesClaims() appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	return ptr.Deref(s.Set.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
}

func (s *State) setReference() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.Set, s.Kind)
}

// ownersOf returns the claims of a pod whose owner references must change. A claim of
// a pod beyond the replicas may go with the pod, any other only with the set. A claim that an
// earlier set or pod of the name owns is left to the garbage collector, and one that another
// controller owns gets no owner.
func (s *State) ownersOf(pod *corev1.Pod, ordinal int, condemned bool) []Owners {
	var changed []Owners
	policy := s.deletesClaims()
	var wanted []metav1.OwnerReference
	switch deletes := appsv1.DeletePersistentVolumeClaimRetentionPolicyType; {
	case condemned && policy.WhenScaled == deletes:
		wanted = append(wanted, *metav1.NewControllerRef(pod, s.PodKind))
	case policy.WhenDeleted == deletes:
		wanted = append(wanted, s.setReference())
	}
	own := []metav1.OwnerReference{s.setReference(), *metav1.NewControllerRef(pod, s.PodKind)}
	for i := range s.Set.Spec.VolumeClaimTemplates {
		claim := s.Claims[ClaimName(s.Set, &s.Set.Spec.VolumeClaimTemplates[i], ordinal)]
		if claim == nil || slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return isStale(r, own) }) {
			continue
		}
		references := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
			return slices.ContainsFunc(own, func(o metav1.OwnerReference) bool { return o.UID == r.UID })
		})
		if !slices.ContainsFunc(references, func(r metav1.OwnerReference) bool { return ptr.Deref(r.Controller, false) }) {
			references = append(references, wanted...)
		}
		if !slices.Equal(ownerKeys(references), ownerKeys(claim.OwnerReferences)) {
			changed = append(changed, Owners{claim, references})
		}
	}
	return changed
}

// isStale reports whether a reference names one of the owners, but with another UID.
func isStale(r metav1.OwnerReference, own []metav1.OwnerReference) bool {
	return slices.ContainsFunc(own, func(o metav1.OwnerReference) bool {
		return o.APIVersion == r.APIVersion && o.Kind == r.Kind && o.Name == r.Name && o.UID != r.UID
	})
}

// ownerKeys returns the UIDs of owners, each with whether it is the controller, sorted.
func ownerKeys(references []metav1.OwnerReference) []string {
	found := make([]string, len(references))
	for i, r := range references {
		found[i] = fmt.Sprint(r.UID, ptr.Deref(r.Controller, false))
	}
	slices.Sort(found)
	return found
}

// awaitsClaims reports whether a claim of an ordinal's pod is being deleted, or is
// about to be, with an earlier pod of the same name. Until then the pod cannot be
// created: it would lose its volume. deleted is the name of a claim that is being deleted
// for another reason, empty if there is none.
func (s *State) awaitsClaims(ordinal int) (deleted string, waits bool) {
	scaled := s.deletesClaims().WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	_, kind := s.PodKind.ToAPIVersionAndKind()
	for i := range s.Set.Spec.VolumeClaimTemplates {
		claim := s.Claims[ClaimName(s.Set, &s.Set.Spec.VolumeClaimTemplates[i], ordinal)]
		if claim == nil {
			continue
		}
		stale := slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.Kind == kind && r.Name == podName(s.Set, ordinal)
		})
		if claim.DeletionTimestamp != nil && (!stale || !scaled) {
			return claim.Name, true
		}
		waits = waits || stale || claim.DeletionTimestamp != nil
	}
	return "", waits
}
