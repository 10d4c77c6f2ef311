package rollout

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// scaledSince tells whether the deployment has been scaled since its replica
// sets got their sizes. It may be amid a rollout, which then goes on from other
// sizes. Recreation of several replica sets makes all sizes anew anyway.
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

// scale gives the replica sets sizes that follow from the deployment's size, and
// lets the rollout be as far as it is.
func (r *rollout) scale() {
	sets := active(r.all())
	switch {
	case len(sets) == 0:
		// The newest one, that is the new one or the youngest.
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

// saturated tells whether the new replica set has all pods, and they are
// available. Old ones may have pods still if they have been adopted just now.
func (r *rollout) saturated() bool {
	if r.fresh == nil {
		return false
	}
	desired, ok := noted(r.fresh, DesiredReplicas)
	return ok && desired == r.desired() && size(r.fresh) == r.desired() && available(r.fresh) == r.desired()
}

// scaleProportionally lets each replica set have the part of the pods that it
// had before, so that a rollout that is not good does not get worse by scaling.
// None changes against the direction. What is left of rounding is the largest
// one's.
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
		rest := max(left, -sizes[i])
		r.resize(set, sizes[i]+rest)
		left -= rest
	}
}

// part is by how much a replica set's size changes if it keeps its proportion of
// all pods, of which there will be most.
func (r *rollout) part(set *appsv1.ReplicaSet, most int32) int32 {
	before, ok := noted(set, MaxReplicas)
	if !ok || before == 0 {
		// Somebody has spoilt the annotation.
		before = r.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(size(set))*float64(most)/float64(before))) - size(set)
}
