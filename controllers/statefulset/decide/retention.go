package decide

import (
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
	version, kind := s.Kind.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: s.Set.Name, UID: s.Set.UID}
}

func (s *State) podReference(pod *corev1.Pod) metav1.OwnerReference {
	version, kind := s.PodKind.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: pod.Name, UID: pod.UID}
}

// ownersOf returns the claims of a pod whose owner references must change. A claim of
// a pod beyond the replicas may go with the pod, any other only with the set.
func (s *State) ownersOf(pod *corev1.Pod, ordinal int, condemned bool) []Owners {
	var changed []Owners
	policy := s.deletesClaims()
	bySet, byPod := policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType, false
	if condemned && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		bySet, byPod = false, true
	}
	for i := range s.Set.Spec.VolumeClaimTemplates {
		claim := s.Claims[ClaimName(s.Set, &s.Set.Spec.VolumeClaimTemplates[i], ordinal)]
		if claim == nil {
			continue
		}
		references := with(claim.OwnerReferences, s.setReference(), bySet)
		references = with(references, s.podReference(pod), byPod)
		if !slices.Equal(uids(references), uids(claim.OwnerReferences)) {
			changed = append(changed, Owners{claim, references})
		}
	}
	return changed
}

// with returns references that have the owner, or do not have it.
func with(references []metav1.OwnerReference, owner metav1.OwnerReference, wanted bool) []metav1.OwnerReference {
	has := func(r metav1.OwnerReference) bool { return r.UID == owner.UID }
	switch {
	case wanted && !slices.ContainsFunc(references, has):
		return append(slices.Clone(references), owner)
	case !wanted:
		return slices.DeleteFunc(slices.Clone(references), has)
	}
	return references
}

func uids(references []metav1.OwnerReference) []string {
	found := make([]string, len(references))
	for i, r := range references {
		found[i] = string(r.UID)
	}
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
