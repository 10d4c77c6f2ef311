package noderestriction

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// errNotStatus refuses all changes of a claim but those of its status, whatever other rules
// give to nodes.
var errNotStatus = errors.New("may only update PVC status")

// claimStatus returns an error if the node changes more of a claim than what the expansion
// of its volume changes.
func claimStatus(node string, changed, old *corev1.PersistentVolumeClaim) error {
	rest := func(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		claim = claim.DeepCopy()
		claim.ResourceVersion, claim.ManagedFields = "", nil
		claim.Status.Capacity, claim.Status.Conditions = nil, nil
		claim.Status.AllocatedResources, claim.Status.AllocatedResourceStatuses = nil, nil
		return claim
	}
	if !equality.Semantic.DeepEqual(rest(changed), rest(old)) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.capacity and status.conditions", node)
	}
	return nil
}
