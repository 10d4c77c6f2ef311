package decision

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
)

// DefaultVolumeShape returns the shape with which the feature gate VolumeCapacityPriority
// prefers the smallest volumes that are large enough: kube-scheduler's.
func DefaultVolumeShape() []ShapePoint { return []ShapePoint{{0, 0}, {100, maxScore}} }

// DefaultCapacityShape returns the shape with which the feature gate StorageCapacityScoring
// prefers the largest volumes and capacity: kube-scheduler's.
func DefaultCapacityShape() []ShapePoint { return []ShapePoint{{0, maxScore}, {100, 0}} }

// volumesByShape scores nodes as the profile's shape says by the volumes that exist and that the
// pod's claims would be bound to there (KEP-1845) or, if there are none, by the capacity for those
// that are to be provisioned (KEP-4049). Classes of storage have the same weight.
func volumesByShape(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	if len(r.profile.VolumeShape) == 0 || len(r.waiting) == 0 {
		return false
	}
	scored := false
	for i, n := range nodes {
		decisions, _ := r.place(&s.storage, n) // of nodes that passed the filters, or without this filter
		classes := s.storage.usageOf(r.waiting, decisions)
		if len(classes) == 0 && r.profile.ScoreCapacity {
			classes = s.storage.capacityUsage(r.waiting, n)
		}
		if len(classes) == 0 {
			continue
		}
		scored = true
		var sum int64
		for _, u := range classes {
			sum += interpolate(r.profile.VolumeShape, u.part())
		}
		scores[i] = int64(math.Round(float64(sum) / float64(len(classes))))
	}
	return scored
}

// volumeUsage is what claims request of the volumes of a class that they are bound to, or of the
// capacity for new ones, and how large these are, in bytes.
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

// capacityUsage returns the usage of the capacity that drivers report for a node by class, for
// claims whose volumes are all to be provisioned. The claims of a class share its capacity: the
// largest of those where the volume of the last one can be provisioned.
func (st *storage) capacityUsage(claims []*corev1.PersistentVolumeClaim, n *node) map[string]volumeUsage {
	classes := map[string]volumeUsage{}
	for _, claim := range claims {
		if !st.isLimited(claim) {
			continue
		}
		u := volumeUsage{requested: claim.Spec.Resources.Requests.Storage().Value()}
		for report := range st.reports(claim, n) {
			if report.Capacity != nil {
				u.capacity = max(u.capacity, report.Capacity.Value())
			}
		}
		class := volume.GetPersistentVolumeClaimClass(claim)
		u.requested += classes[class].requested
		classes[class] = u
	}
	return classes
}
