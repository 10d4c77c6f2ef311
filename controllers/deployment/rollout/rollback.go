package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Rollback is what the annotation deprecated.deployment.rollback.to of a deployment
// requests.
type Rollback struct {
	// Deployment is the deployment to write: without the annotation and, if the revision
	// was found, with its template.
	Deployment *appsv1.Deployment
	// EventType, Reason and Message are those of an event about the deployment.
	EventType, Reason, Message string
}

// The reasons of events about rollbacks.
const (
	rolledBack        = "DeploymentRollback"
	revisionNotFound  = "DeploymentRollbackRevisionNotFound"
	templateUnchanged = "DeploymentRollbackTemplateUnchanged"
)

// RollBack returns the rollback that the annotation of a deployment requests: to the
// revision that it names, or with 0 to the last one. It returns nil without the
// annotation, if it is not a number, and until the deployment's own template has a
// replica set.
func RollBack(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *Rollback {
	to, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	if err != nil || d.DeletionTimestamp != nil || d.Spec.Paused ||
		!slices.ContainsFunc(sets, func(set *appsv1.ReplicaSet) bool { return SameTemplate(&set.Spec.Template, &d.Spec.Template) }) {
		return nil
	}
	b := &Rollback{Deployment: d.DeepCopy(), EventType: corev1.EventTypeWarning}
	delete(b.Deployment.Annotations, appsv1.DeprecatedRollbackTo)
	if to == 0 {
		if to = lastRevision(sets); to == 0 {
			b.Reason, b.Message = revisionNotFound, "Unable to find last revision."
			return b
		}
	}
	i := slices.IndexFunc(sets, func(set *appsv1.ReplicaSet) bool { return set.Annotations[Revision] != "" && revision(set) == to })
	switch {
	case i < 0:
		b.Reason, b.Message = revisionNotFound, "Unable to find the revision to rollback to."
	case SameTemplate(&sets[i].Spec.Template, &d.Spec.Template):
		b.Reason, b.Message = templateUnchanged, fmt.Sprintf("The rollback revision contains the same template as current deployment %q", d.Name)
	default:
		b.Deployment.Spec.Template = *withoutHash(&sets[i].Spec.Template).DeepCopy()
		copyAnnotationsBack(b.Deployment, sets[i])
		b.EventType, b.Reason, b.Message = corev1.EventTypeNormal, rolledBack, fmt.Sprintf("Rolled back deployment %q to revision %d", d.Name, to)
	}
	return b
}

// lastRevision returns the second highest revision of the replica sets, zero if there is
// none.
func lastRevision(sets []*appsv1.ReplicaSet) int64 {
	var highest, second int64
	for _, set := range sets {
		switch n := revision(set); {
		case n >= highest:
			highest, second = n, highest
		case n > second:
			second = n
		}
	}
	return second
}

// copyAnnotationsBack gives a deployment the annotations that it had with the template of
// a replica set, such as the cause of the change.
func copyAnnotationsBack(d *appsv1.Deployment, set *appsv1.ReplicaSet) {
	own := ownAnnotations()
	maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return !slices.Contains(own, key) })
	for key, value := range set.Annotations {
		if !slices.Contains(own, key) {
			d.Annotations = with(d.Annotations, key, value)
		}
	}
}
