package decision

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
)

// DefaultVolumeShape returns the shape with which the feature gate VolumeCapacityPriority
// prefers the smallest volumes that are large enough: kube-scheduler's.
func DefaultVolumeShape() []ShapePoint { return []ShapePoint{{0, 0}, {100, maxScore}} }

// fullVolumes scores nodes by the volumes that exist and that the pod's claims would be bound
// to there, as the profile's shape says (KEP-1845). Classes of storage have the same weight, and
// volumes that are to be provisioned do not count.
func fullVolumes(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	if len(r.profile.VolumeShape) == 0 || len(r.waiting) == 0 {
		return false
	}
	bound := false
	for i, n := range nodes {
		decisions, _ := s.storage.place(r.waiting, n) // of nodes that passed the filters, or without this filter
		classes := s.storage.usageOf(r.waiting, decisions)
		if len(classes) == 0 {
			continue
		}
		bound = true
		var sum int64
		for _, u := range classes {
			sum += interpolate(r.profile.VolumeShape, u.part())
		}
		scores[i] = int64(math.Round(float64(sum) / float64(len(classes))))
	}
	return bound
}

// volumeUsage is what claims request of the volumes of a class that they are bound to, and how
// large these are, in bytes.
type volumeUsage struct{ requested, capacity int64 }

// part returns the used part in percent.
func (u volumeUsage) part() int64 {
	if u.capacity == 0 || u.requested > u.capacity {
		return 100
	}
	return u.requested * 100 / u.capacity
}

// usageOf returns the usage of existing volumes by class. The decisions are in the order of the
// claims.
func (st *storage) usageOf(claims []*corev1.PersistentVolumeClaim, decisions []ClaimDecision) map[string]volumeUsage {
	classes := map[string]volumeUsage{}
	for i, d := range decisions {
		pv := st.volumes[d.Volume]
		if pv == nil {
			continue
		}
		class := volume.GetPersistentVolumeClaimClass(claims[i])
		u := classes[class]
		u.requested += claims[i].Spec.Resources.Requests.Storage().Value()
		u.capacity += pv.Spec.Capacity.Storage().Value()
		classes[class] = u
	}
	return classes
}
