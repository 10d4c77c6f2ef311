package decision

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	devicesapi "svc.dev/svc/apis/devices"
)

// Release is what a pod without a node gives back of a resource claim: its reservation, without
// which another pod may have the claim deallocated, or the whole claim.
type Release struct {
	// Claim is the claim as a watch shows it.
	Claim *resourcev1.ResourceClaim
	// Whole is set if no other pod uses the claim and it is to be deallocated, or to be deleted if
	// it was made for the pod's extended resources.
	Whole bool
}

// Releases returns what a pod without a node is to give back: the reservations of its claims, and
// the whole claim with the name that the decision about it says (Decision.Release), if any.
func (s *Snapshot) Releases(pod *corev1.Pod, whole string) []Release {
	names := sets.New[string]()
	for name := range resourceclaim.PodClaims(pod) {
		names.Insert(name)
	}
	if whole != "" {
		names.Insert(whole)
	}
	var releases []Release
	for _, name := range sets.List(names) {
		claim := s.devices.claims[objectName{pod.Namespace, name}]
		if claim == nil {
			continue // it is being created, or deleted
		}
		extended := devicesapi.ExtendedClaimOf(claim) != ""
		switch {
		case name == whole && (extended || claim.Status.Allocation != nil) && !devicesapi.IsReservedForOthers(claim, pod.UID):
			releases = append(releases, Release{claim, true})
		case !extended && devicesapi.IsReservedFor(claim, pod.UID):
			releases = append(releases, Release{claim, false})
		}
	}
	return releases
}

// Released replaces a claim with what a release has made of it, unless a watch shows that already.
// The claim has a deletion timestamp if it was deleted.
func (s *Snapshot) Released(claim *resourcev1.ResourceClaim) {
	name := objectName{claim.Namespace, claim.Name}
	if shown := s.devices.claims[name]; shown != nil && shown.UID == claim.UID && isLate(shown, claim) {
		s.SetResourceClaim(claim)
		s.devices.released[name] = claim
	}
}

// isLate reports whether a claim of a watch does not show yet what a release has made of it.
func isLate(claim, released *resourcev1.ResourceClaim) bool {
	order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, released.ResourceVersion)
	return err == nil && (order < 0 || order == 0 && released.DeletionTimestamp != nil)
}

// release returns the name of an allocated claim because of which a node was rejected, and
// that no other pod uses: without its allocation it can be allocated for another node. First
// it is the claim for the pod's extended resources, which is made for a node. It is empty if
// there is none.
func (need *devicesRequest) release(pod *corev1.Pod) string {
	switch {
	case need == nil:
		return ""
	case need.extended != nil && need.extended.made != nil:
		return need.extended.made.Name
	}
	for _, r := range need.reach {
		if r.missed && !devicesapi.IsReservedForOthers(r.claim, pod.UID) {
			return r.claim.Name
		}
	}
	return ""
}
