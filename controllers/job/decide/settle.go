package decide

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// Outcome is what was done of a plan.
type Outcome struct {
	// Created is the number of new pods.
	Created int
	// Deleted are the active pods that were deleted.
	Deleted sets.Set[types.UID]
	// Released are the pods whose finalizers the sync has removed, and Untracked
	// those whose finalizers were gone already.
	Released, Untracked sets.Set[types.UID]
}

// Settle returns the status after the plan's actions, and the events to record
// when that is written.
func (p *Plan) Settle(o Outcome) (batchv1.JobStatus, []Event) {
	status := *p.Status.DeepCopy()
	uncounted := status.UncountedTerminatedPods
	remains := func(uid types.UID) bool { return !o.Released.Has(uid) && !o.Untracked.Has(uid) }
	count := func(uids []types.UID) int32 {
		return int32(len(filter(uids, func(uid types.UID) bool { return !remains(uid) && !p.countedBefore(o, uid) })))
	}
	status.Succeeded += count(uncounted.Succeeded)
	status.Failed += count(uncounted.Failed)
	uncounted.Succeeded, uncounted.Failed = filter(uncounted.Succeeded, remains), filter(uncounted.Failed, remains)

	status.Active = int32(len(p.active) - len(o.Deleted) + o.Created)
	status.Ready = ptr.To(countReady(p.active, o.Deleted))
	status.Terminating = ptr.To(int32(len(p.terminating) + len(o.Deleted)))
	if p.termination == nil || p.truncated || status.Active > 0 || *status.Terminating > 0 || len(uncounted.Succeeded)+len(uncounted.Failed) > 0 {
		return status, nil
	}
	return status, p.finish(&status)
}

// countedBefore reports whether an earlier process has counted the pod: this
// process did not know at its first sync that the pod had no finalizer. At later
// syncs, this process itself has removed it, by a request whose response was
// lost.
func (p *Plan) countedBefore(o Outcome, uid types.UID) bool {
	return o.Untracked.Has(uid) && p.firstSync() && p.newlyUncounted.Has(uid)
}

// finish adds the final condition.
func (p *Plan) finish(status *batchv1.JobStatus) []Event {
	t := p.termination
	setCondition(status, t.finalCondition(), corev1.ConditionTrue, t.reason, t.message, p.timestamp())
	// Only a suspended job without completions finishes without having started.
	if status.StartTime == nil && !(IsSuspended(p.Job) && p.completions == 0) {
		status.StartTime = ptr.To(p.timestamp())
	}
	if !t.succeeds {
		return []Event{{corev1.EventTypeWarning, t.reason, t.message}}
	}
	// The clock of the process that started the job may have been ahead.
	end := p.timestamp()
	if end.Before(status.StartTime) {
		end = *status.StartTime
	}
	status.CompletionTime = &end
	var events []Event
	if p.completions >= 0 && int(status.Succeeded) > p.completions {
		events = append(events, Event{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
	}
	return append(events, normal("Completed", "Job completed"))
}

// countReady counts the ready pods, except those that are given.
func countReady(active []*corev1.Pod, except sets.Set[types.UID]) int32 {
	ready := int32(0)
	for _, pod := range active {
		if pods.IsReady(pod) && !except.Has(pod.UID) {
			ready++
		}
	}
	return ready
}
