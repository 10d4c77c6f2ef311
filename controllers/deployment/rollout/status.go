package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The reasons of the condition Progressing.
const (
	NewReplicaSetCreated     = "NewReplicaSetCreated"
	FoundNewReplicaSet       = "FoundNewReplicaSet"
	ReplicaSetUpdated        = "ReplicaSetUpdated"
	ReplicaSetCreateError    = "ReplicaSetCreateError"
	NewReplicaSetAvailable   = "NewReplicaSetAvailable"
	ProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	DeploymentPaused         = "DeploymentPaused"
	DeploymentResumed        = "DeploymentResumed"
)

// The reasons of the condition Available.
const (
	MinimumReplicasAvailable   = "MinimumReplicasAvailable"
	MinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)

// CreationFailed returns the status of a deployment whose new replica set could not
// be created.
func CreationFailed(d *appsv1.Deployment, message string, now time.Time) appsv1.DeploymentStatus {
	r := newRollout(State{Deployment: d, Now: now})
	if hasDeadline(d) {
		setCondition(&r.d.Status, r.progressing(corev1.ConditionFalse, ReplicaSetCreateError, message))
	}
	return r.d.Status
}

// hasDeadline reports whether the deployment has a progress deadline.
func hasDeadline(d *appsv1.Deployment) bool {
	return ptr.Deref(d.Spec.ProgressDeadlineSeconds, math.MaxInt32) != math.MaxInt32
}

// notePause sets the condition Progressing of a deployment that was paused or
// resumed: the time in between does not count for the progress deadline.
func (r *rollout) notePause() {
	c := condition(&r.d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(r.d) || c != nil && c.Reason == ProgressDeadlineExceeded {
		return
	}
	noted := c != nil && c.Reason == DeploymentPaused
	switch {
	case r.d.Spec.Paused && !noted:
		setCondition(&r.d.Status, r.progressing(corev1.ConditionUnknown, DeploymentPaused, "Deployment is paused"))
	case !r.d.Spec.Paused && noted:
		setCondition(&r.d.Status, r.progressing(corev1.ConditionUnknown, DeploymentResumed, "Deployment is resumed"))
	}
}

// count sets the status except for the condition Progressing.
func (r *rollout) count() {
	all := r.all()
	available := sum(all, available)
	r.status = appsv1.DeploymentStatus{
		ObservedGeneration:  r.d.Generation,
		Replicas:            sum(all, replicas),
		ReadyReplicas:       sum(all, ready),
		AvailableReplicas:   available,
		UnavailableReplicas: max(sum(all, size)-available, 0),
		TerminatingReplicas: terminating(all),
		CollisionCount:      r.d.Status.CollisionCount,
		Conditions:          slices.Clone(r.d.Status.Conditions),
	}
	if r.fresh != nil {
		r.status.UpdatedReplicas = replicas(r.fresh)
	}
	if available >= leastAvailable(r.d) {
		setCondition(&r.status, r.condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, MinimumReplicasAvailable, "Deployment has minimum availability."))
	} else {
		setCondition(&r.status, r.condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, MinimumReplicasUnavailable, "Deployment does not have minimum availability."))
	}
}

// terminating returns the number of terminating pods, or nil if a replica set does
// not report it.
func terminating(sets []*appsv1.ReplicaSet) *int32 {
	var total int32
	for _, set := range sets {
		switch s := &set.Status; {
		case s.TerminatingReplicas != nil:
			total += *s.TerminatingReplicas
		case s.ObservedGeneration != 0:
			return nil
		}
	}
	return &total
}

// report sets the status during a rollout, with its progress and the failures of
// replica sets.
func (r *rollout) report() {
	r.count()
	before := condition(&r.d.Status, appsv1.DeploymentProgressing)
	success := r.subject() + " has successfully progressed."
	succeeded := before != nil && before.Reason == NewReplicaSetAvailable
	// The last rollout may have been that of another replica set, which this one replaces.
	finished := succeeded && (r.fresh == nil || before.Message == success) && r.status.Replicas == r.status.UpdatedReplicas
	switch {
	case !hasDeadline(r.d):
		removeCondition(&r.status, appsv1.DeploymentProgressing)
	case finished:
		// Later changes of the pods are not part of the rollout.
	case complete(r.d, &r.status):
		c := r.progressing(corev1.ConditionTrue, NewReplicaSetAvailable, success)
		if succeeded {
			removeCondition(&r.status, appsv1.DeploymentProgressing) // its message is of another replica set
			c.LastTransitionTime = before.LastTransitionTime
		}
		setCondition(&r.status, c)
	case r.progressed():
		// LastUpdateTime is the time of the latest progress.
		removeCondition(&r.status, appsv1.DeploymentProgressing)
		c := r.progressing(corev1.ConditionTrue, ReplicaSetUpdated, r.subject()+" is progressing.")
		if before != nil && before.Status == corev1.ConditionTrue {
			c.LastTransitionTime = before.LastTransitionTime
		}
		setCondition(&r.status, c)
	case before != nil && !succeeded && before.Reason != ProgressDeadlineExceeded && !r.now.Before(r.deadline(before)):
		setCondition(&r.status, r.progressing(corev1.ConditionFalse, ProgressDeadlineExceeded, r.subject()+" has timed out progressing."))
	}
	if failure := r.failure(); failure != nil {
		setCondition(&r.status, *failure)
	} else {
		removeCondition(&r.status, appsv1.DeploymentReplicaFailure)
	}
	r.wait()
}

// wait sets the time until the progress deadline.
func (r *rollout) wait() {
	c := condition(&r.status, appsv1.DeploymentProgressing)
	if c == nil || complete(r.d, &r.status) || c.Reason == NewReplicaSetAvailable || c.Reason == ProgressDeadlineExceeded {
		return
	}
	r.after = max(r.deadline(c).Sub(r.now), time.Millisecond)
}

func (r *rollout) deadline(c *appsv1.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*r.d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// subject returns the object of a message about progress.
func (r *rollout) subject() string {
	if r.fresh == nil {
		return fmt.Sprintf("Deployment %q", r.d.Name)
	}
	return fmt.Sprintf("ReplicaSet %q", r.fresh.Name)
}

// complete reports whether all pods are of the new replica set and available.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	desired := *d.Spec.Replicas
	return s.UpdatedReplicas == desired && s.Replicas == desired && s.AvailableReplicas == desired && s.ObservedGeneration >= d.Generation
}

// progressed reports whether there are, compared to the last status, more new pods,
// fewer old ones, or more that are ready or available.
func (r *rollout) progressed() bool {
	s, before := &r.status, &r.d.Status
	return s.UpdatedReplicas > before.UpdatedReplicas ||
		s.Replicas-s.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		s.ReadyReplicas > before.ReadyReplicas ||
		s.AvailableReplicas > before.AvailableReplicas
}

// failure returns the condition ReplicaFailure of the new replica set, or else of the
// first other one that has it.
func (r *rollout) failure() *appsv1.DeploymentCondition {
	sets := r.all()
	if r.fresh != nil {
		sets = append([]*appsv1.ReplicaSet{r.fresh}, r.old...)
	}
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime,
				}
			}
		}
	}
	return nil
}

func (r *rollout) progressing(status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	return r.condition(appsv1.DeploymentProgressing, status, reason, message)
}

func (r *rollout) condition(name appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	// The API server stores times in seconds.
	now := metav1.NewTime(r.now.Truncate(time.Second))
	return appsv1.DeploymentCondition{Type: name, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
}

func condition(s *appsv1.DeploymentStatus, name appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition replaces the condition of that type, unless it says the same.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if was := condition(s, c.Type); was != nil && was.Status == c.Status {
		if was.Reason == c.Reason {
			return
		}
		c.LastTransitionTime = was.LastTransitionTime
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, name appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == name })
}

// oldest is the maximum age of a status while its counts keep changing.
const oldest = 3 * time.Second

// StatusWait returns how long the write of the deployment's status may be delayed;
// zero is now. During a rollout, a status that differs only in its counts is written
// every three seconds, because every pod changes them.
func (p Plan) StatusWait(d *appsv1.Deployment, now time.Time) time.Duration {
	if p.Revision != d.Annotations[Revision] || p.Status.ObservedGeneration != d.Status.ObservedGeneration ||
		slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb != Change }) {
		return 0
	}
	before := condition(&d.Status, appsv1.DeploymentProgressing)
	if before == nil || before.Reason != ReplicaSetUpdated || !slices.EqualFunc(d.Status.Conditions, p.Status.Conditions, sameCause) {
		return 0
	}
	if wait := before.LastUpdateTime.Add(oldest).Sub(now); wait <= oldest {
		return max(wait, 0)
	}
	return 0 // the clock that wrote it was ahead
}

func sameCause(a, b appsv1.DeploymentCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}
