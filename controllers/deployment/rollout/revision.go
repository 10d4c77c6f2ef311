package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// followNew updates the new replica set, if it exists, with the deployment's
// annotations, its minReadySeconds and the highest revision. The deployment gets
// the revision of its new replica set.
func (r *rollout) followNew() {
	if r.fresh == nil {
		return
	}
	before := maps.Clone(r.fresh.Annotations)
	copyAnnotations(r.fresh, r.d)
	raiseRevision(r.fresh, r.nextRevision())
	if !maps.Equal(before, r.fresh.Annotations) || r.fresh.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		r.fresh.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		r.touch(r.fresh)
	}
	r.setRevision()
	// The progress deadline may have been set after the rollout began.
	if hasDeadline(r.d) && condition(&r.d.Status, appsv1.DeploymentProgressing) == nil {
		setCondition(&r.d.Status, r.progressing(corev1.ConditionTrue, FoundNewReplicaSet, fmt.Sprintf("Found new replica set %q", r.fresh.Name)))
	}
}

// makeNew creates the new replica set if it does not exist, as large as allowed. It
// reports whether it did not exist.
func (r *rollout) makeNew() bool {
	if r.fresh != nil {
		return false
	}
	set := newSet(r.d)
	copyAnnotations(set, r.d)
	raiseRevision(set, r.nextRevision())
	r.fresh = set
	r.touch(set)
	r.resize(set, r.newSize())
	r.setRevision()
	if hasDeadline(r.d) {
		setCondition(&r.d.Status, r.progressing(corev1.ConditionTrue, NewReplicaSetCreated, fmt.Sprintf("Created new replica set %q", set.Name)))
	}
	return true
}

func (r *rollout) setRevision() {
	r.d.Annotations = with(r.d.Annotations, Revision, r.fresh.Annotations[Revision])
}

// nextRevision returns the highest revision of the old replica sets plus one.
func (r *rollout) nextRevision() int64 {
	var highest int64
	for _, set := range r.old {
		highest = max(highest, revision(set))
	}
	return highest + 1
}

// revision returns the revision of a replica set; zero if it is missing or invalid.
func revision(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[Revision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ownAnnotations returns the annotations that are not copied from a deployment to
// its replica sets.
func ownAnnotations() []string {
	return []string{corev1.LastAppliedConfigAnnotation, Revision, RevisionHistory, DesiredReplicas, MaxReplicas, appsv1.DeprecatedRollbackTo}
}

func copyAnnotations(set *appsv1.ReplicaSet, d *appsv1.Deployment) {
	own := ownAnnotations()
	for key, value := range d.Annotations {
		if !slices.Contains(own, key) {
			set.Annotations = with(set.Annotations, key, value)
		}
	}
}

// historyLength bounds the annotation RevisionHistory, in bytes.
const historyLength = 2000

// raiseRevision sets the revision of the replica set if it is higher than the present
// one, which is appended to its history.
func raiseRevision(set *appsv1.ReplicaSet, to int64) {
	was, had := set.Annotations[Revision]
	if n, err := strconv.ParseInt(was, 10, 64); was != "" && (err != nil || n >= to) {
		return
	}
	set.Annotations = with(set.Annotations, Revision, strconv.FormatInt(to, 10))
	if !had || was == "" {
		return
	}
	var history []string
	if earlier := set.Annotations[RevisionHistory]; earlier != "" {
		history = strings.Split(earlier, ",")
	}
	history = append(history, was)
	for len(strings.Join(history, ",")) > historyLength {
		history = history[1:]
	}
	set.Annotations[RevisionHistory] = strings.Join(history, ",")
}

// noteSize annotates the replica set with the deployment's present size, and reports
// whether the annotations have changed.
func noteSize(set *appsv1.ReplicaSet, d *appsv1.Deployment) bool {
	desired, most := strconv.Itoa(int(*d.Spec.Replicas)), strconv.Itoa(int(largest(d)))
	if set.Annotations[DesiredReplicas] == desired && set.Annotations[MaxReplicas] == most {
		return false
	}
	set.Annotations = with(with(set.Annotations, DesiredReplicas, desired), MaxReplicas, most)
	return true
}

// noted returns the value of an annotation of noteSize.
func noted(set *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseUint(set.Annotations[annotation], 10, 31)
	return int32(n), err == nil
}

// cleanUp deletes the oldest replica sets beyond the revisionHistoryLimit. One that
// has pods is kept but counts. The last one is kept until the new one exists, whose
// revision depends on it.
func (r *rollout) cleanUp() {
	limit := r.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return
	}
	keep := int(*limit)
	if r.fresh == nil {
		keep = max(keep, 1)
	}
	alive := slices.DeleteFunc(slices.Clone(r.old), func(set *appsv1.ReplicaSet) bool { return set.DeletionTimestamp != nil })
	slices.SortStableFunc(alive, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revision(a), revision(b)) })
	for _, set := range alive[:max(len(alive)-keep, 0)] {
		if !slices.Contains(r.touched, set) && size(set) == 0 && replicas(set) == 0 && set.Status.ObservedGeneration >= set.Generation {
			r.deleted = append(r.deleted, set)
		}
	}
}
