package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
)

// roll does the next step of a rolling update: the old replica sets shrink as far
// as they can, and the new one grows into the room. One that is made just now is
// made before the old ones shrink, as it may not be possible, and grows with the
// next step.
func (r *rollout) roll() {
	made := r.makeNew()
	shrunk := r.shrinkOld()
	resized := !made && r.resizeNew()
	if !made && !shrunk && !resized && complete(r.d, &r.d.Status) {
		r.cleanUp()
	}
	r.report()
}

// resizeNew tells whether the new replica set gets another size.
func (r *rollout) resizeNew() bool {
	if to := r.newSize(); to != size(r.fresh) {
		r.resize(r.fresh, to)
		return true
	}
	return false
}

// newSize is how large the new replica set is to be now: as large as desired, if
// with the old ones there are not too many then.
func (r *rollout) newSize() int32 {
	if !r.rolls() || size(r.fresh) > r.desired() {
		return r.desired()
	}
	room := largest(r.d) - sum(r.all(), size)
	return min(size(r.fresh)+max(room, 0), r.desired())
}

// shrinkOld tells whether an old replica set shrinks. All pods but those that
// the new replica set has and that are not available must stay as many as must
// be available. First go those pods of old replica sets that are not available,
// as they would stop the update else, then others.
func (r *rollout) shrinkOld() bool {
	old := active(r.old)
	spare := sum(r.all(), size) - leastAvailable(r.d) - (size(r.fresh) - available(r.fresh))
	if len(old) == 0 || spare <= 0 {
		return false
	}
	shrunk := r.shrink(old, spare, func(set *appsv1.ReplicaSet) int32 { return size(set) - staying(set) })
	return r.shrink(old, sum(r.all(), staying)-leastAvailable(r.d), size) || shrunk
}

// shrink takes pods from replica sets in order, count in all and from each not
// more than its share.
func (r *rollout) shrink(sets []*appsv1.ReplicaSet, count int32, share func(*appsv1.ReplicaSet) int32) bool {
	shrunk := false
	for _, set := range sets {
		if n := min(count, share(set)); n > 0 {
			r.resize(set, size(set)-n)
			count -= n
			shrunk = true
		}
	}
	return shrunk
}

// recreate does the next step when old and new pods must not be there together:
// it ends the old ones, waits for them, and only then makes the new ones.
func (r *rollout) recreate() {
	old := active(r.old)
	for _, set := range old {
		r.resize(set, 0)
	}
	if len(old) > 0 || r.oldPodsRun() {
		r.report()
		return
	}
	r.makeNew()
	if size(r.fresh) != r.desired() {
		r.resize(r.fresh, r.desired())
	}
	if complete(r.d, &r.d.Status) {
		r.cleanUp()
	}
	r.report()
}

func (r *rollout) oldPodsRun() bool {
	for _, set := range r.old {
		if replicas(set) > 0 || r.running[set.UID] > 0 {
			return true
		}
	}
	return false
}
