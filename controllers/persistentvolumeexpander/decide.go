package persistentvolumeexpander

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// grown reports whether a bound claim requests more than it has.
func grown(claim *corev1.PersistentVolumeClaim) bool {
	has, bound := claim.Status.Capacity[corev1.ResourceStorage]
	return bound && claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil && request(claim).Cmp(has) > 0
}

func request(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	return claim.Spec.Resources.Requests.Storage()
}
