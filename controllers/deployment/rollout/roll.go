package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
)

// roll decides the next step of a rolling update: the old replica sets are scaled
// down as far as possible, and the new one up. A new one is first created, which
// may fail, and scaled by the next step.
func (r *rollout) roll() {
	made := r.makeNew()
	shrunk := r.shrinkOld()
	resized := !made && r.resizeNew()
	if !made && !shrunk && !resized && complete(r.d, &r.d.Status) {
		r.cleanUp()
	}
	r.report()
}

// resizeNew scales the new replica set, and reports whether its size changes.
func (r *rollout) resizeNew() bool {
	if to := r.newSize(); to != size(r.fresh) {
		r.resize(r.fresh, to)
		return true
	}
	return false
}

// newSize returns the size of the new replica set for now: the desired size, or less
// if there would be too many pods together with the old ones.
func (r *rollout) newSize() int32 {
	if !r.rolls() || size(r.fresh) > r.desired() {
		return r.desired()
	}
	room := largest(r.d) - sum(r.all(), size)
	return min(size(r.fresh)+max(room, 0), r.desired())
}

// shrinkOld scales old replica sets down, and reports whether any size changes. The
// unavailable pods of the new replica set do not count towards the pods that must
// be available. The unavailable pods of the old replica sets are removed first,
// because they would block the update.
func (r *rollout) shrinkOld() bool {
	old := active(r.old)
	spare := sum(r.all(), size) - leastAvailable(r.d) - (size(r.fresh) - available(r.fresh))
	if len(old) == 0 || spare <= 0 {
		return false
	}
	shrunk := r.shrink(old, spare, func(set *appsv1.ReplicaSet) int32 { return size(set) - staying(set) })
	return r.shrink(old, sum(r.all(), staying)-leastAvailable(r.d), size) || shrunk
}

// shrink scales replica sets down in order, by count pods in total, and each by its
// share at most. It reports whether it scaled any down.
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

// recreate decides the next step of the strategy Recreate: it scales the old replica
// sets to zero, waits until their pods have terminated, and then creates the new
// replica set.
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

// oldPodsRun reports whether pods of old replica sets have not terminated.
func (r *rollout) oldPodsRun() bool {
	for _, set := range r.old {
		if replicas(set) > 0 || r.running[set.UID] > 0 {
			return true
		}
	}
	return false
}
