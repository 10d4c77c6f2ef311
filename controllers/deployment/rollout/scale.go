package rollout

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// scaledSince reports whether the deployment has been scaled since its replica sets
// were, possibly during a rollout. The strategy Recreate sets all sizes of several
// replica sets in any case.
func (r *rollout) scaledSince() bool {
	sets := active(r.all())
	if !r.rolls() && len(sets) > 1 {
		return false
	}
	return slices.ContainsFunc(sets, func(set *appsv1.ReplicaSet) bool {
		desired, ok := noted(set, DesiredReplicas)
		return ok && desired != r.desired()
	})
}

// scale scales the replica sets to the deployment's size without advancing the
// rollout.
func (r *rollout) scale() {
	sets := active(r.all())
	switch {
	case len(sets) == 0:
		// The new replica set, or the youngest old one.
		if all := r.all(); len(all) > 0 && r.desired() > 0 {
			r.resize(all[len(all)-1], r.desired())
		}
	case len(sets) == 1:
		if desired, ok := noted(sets[0], DesiredReplicas); size(sets[0]) != r.desired() || ok && desired != r.desired() {
			r.resize(sets[0], r.desired())
		}
	case r.saturated():
		for _, set := range active(r.old) {
			r.resize(set, 0)
		}
	case r.rolls():
		r.scaleProportionally(sets)
	}
}

// saturated reports whether the new replica set has all desired pods available. Old
// ones that were just adopted may still have pods.
func (r *rollout) saturated() bool {
	if r.fresh == nil {
		return false
	}
	desired, ok := noted(r.fresh, DesiredReplicas)
	return ok && desired == r.desired() && size(r.fresh) == r.desired() && available(r.fresh) == r.desired()
}

// scaleProportionally keeps each replica set's proportion of the pods, so that
// scaling does not advance a rollout that may be failing. No replica set changes
// against the direction of the scaling. The largest one gets the remainder of the
// rounding.
func (r *rollout) scaleProportionally(sets []*appsv1.ReplicaSet) {
	var most int32
	if r.desired() > 0 {
		most = largest(r.d)
	}
	add := most - sum(sets, size)
	sets = slices.Clone(sets)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := byAge(a, b)
		if add > 0 {
			age = -age // growth begins with the youngest of the same size
		}
		return cmp.Or(cmp.Compare(size(b), size(a)), age)
	})
	sizes := make([]int32, len(sets))
	left := add
	for i, set := range sets {
		part := min(max(r.part(set, most), min(left, 0)), max(left, 0))
		sizes[i] = size(set) + part
		left -= part
	}
	for i, set := range sets {
		remainder := max(left, -sizes[i])
		r.resize(set, sizes[i]+remainder)
		left -= remainder
	}
}

// part returns by how much a replica set's size changes if it keeps its proportion
// of all pods, whose number will be most.
func (r *rollout) part(set *appsv1.ReplicaSet, most int32) int32 {
	before, ok := noted(set, MaxReplicas)
	if !ok || before == 0 {
		// The annotation is missing or invalid.
		before = r.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(size(set))*float64(most)/float64(before))) - size(set)
}
