// Package decide owns the decision about a job: which pods to create and delete,
// which finalizers to remove, and which status to write. It is pure.
package decide

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// Plan is what a sync of a job has to do, in this order:
//
//  1. write Status, if StatusFirst is set,
//  2. create the pods of Create and delete those of Delete,
//  3. remove the finalizers of Release,
//  4. write the status that Settle returns.
//
// A pod is counted in two steps, so that a crash between any two writes neither
// loses nor counts it twice (KEP-2307): first its UID is written to
// status.uncountedTerminatedPods, then the finalizer is removed, and then the
// UID is replaced by an increment of the counter.
type Plan struct {
	*state

	// StatusFirst reports that Status must be stored before any action: it lists
	// pods whose finalizers the plan removes, or records that the job terminates.
	StatusFirst bool
	Status      batchv1.JobStatus
	Create      []Replica
	Delete      []Deletion
	Release     []Release
	// Events are recorded with the first status that is written.
	Events []Event
	// RequeueAfter is the time until the next sync, if no event comes before;
	// zero is never.
	RequeueAfter time.Duration
	// Backoff is that of the job's pods, for the next sync.
	Backoff Backoff

	termination *termination
	// newlyUncounted are the pods that Status lists as uncounted and the stored
	// status does not.
	newlyUncounted sets.Set[types.UID]
	// truncated reports that the plan has reached the limit of pods per sync.
	truncated bool
}

// Deletion is a pod to delete.
type Deletion struct {
	Pod *corev1.Pod
	// UntrackFirst is set for a pod that is not to be counted: it loses its
	// finalizer before it is deleted, or is kept if it has terminated by then.
	UntrackFirst bool
}

// Release is a pod whose finalizer to remove.
type Release struct {
	Pod *corev1.Pod
	// OnlyIfRunning is set for a pod that is not to be counted: if it has
	// terminated by now, it keeps the finalizer until the next sync counts it.
	OnlyIfRunning bool
	// AfterDelete is set for a pod that the plan deletes: if the deletion fails,
	// the pod keeps the finalizer.
	AfterDelete bool
}

// Event is an event about the job.
type Event struct{ Type, Reason, Message string }

func normal(reason, message string) Event { return Event{corev1.EventTypeNormal, reason, message} }

// nextSync is the time until the sync that continues a truncated plan.
const nextSync = time.Millisecond

// Next decides about a job that has not finished.
func Next(in Input) *Plan {
	p := &Plan{state: observe(in), Status: *in.Job.Status.DeepCopy(), newlyUncounted: sets.New[types.UID]()}
	p.Backoff = p.backoff
	if p.Status.UncountedTerminatedPods == nil {
		p.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	p.resume()
	if p.termination = p.terminates(p.Status.StartTime); p.termination != nil {
		p.deleteActive()
	} else if in.Job.DeletionTimestamp == nil {
		p.suspend()
		p.scale()
	}
	p.releaseFinalizers()
	p.decideStatusFirst()
	if p.truncated {
		p.RequeueAfter = nextSync
	}
	return p
}

// firstSync reports whether this process syncs the job for the first time.
func (p *Plan) firstSync() bool { return p.PreviousBackoff == nil }

// timestamp is the current time in the precision of the API, seconds.
func (p *Plan) timestamp() metav1.Time { return metav1.NewTime(p.Now.Truncate(time.Second)) }

// resume sets the start time of a job that starts or is resumed.
func (p *Plan) resume() {
	if IsSuspended(p.Job) {
		return
	}
	if setCondition(&p.Status, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", p.timestamp()) {
		p.Events = append(p.Events, normal("Resumed", "Job resumed"))
		p.Status.StartTime = nil
	}
	if p.Status.StartTime == nil {
		p.Status.StartTime = ptr.To(p.timestamp())
	}
}

// suspend resets the start time of a job that is suspended. The scheduling
// directives of a job are mutable while it has no start time.
func (p *Plan) suspend() {
	if IsSuspended(p.Job) && setCondition(&p.Status, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", p.timestamp()) {
		p.Events = append(p.Events, normal("Suspended", "Job suspended"))
		p.Status.StartTime = nil
	}
}

// deleteActive deletes the active pods of a job that terminates.
func (p *Plan) deleteActive() {
	for _, pod := range p.active {
		p.Delete = append(p.Delete, Deletion{Pod: pod})
	}
}

// scale deletes excess pods or creates missing ones. It never does both in one
// sync.
func (p *Plan) scale() {
	if left, limited := p.deadline(p.Status.StartTime); limited {
		p.requeueAfter(left)
	}
	want := p.wanted()
	if excess := p.excessPods(want); len(excess) > 0 {
		for _, pod := range limit(p, excess) {
			p.Delete = append(p.Delete, Deletion{Pod: pod, UntrackFirst: IsTracked(pod)})
		}
		return
	}
	if replacesFailedOnly(p.Job) {
		want -= len(p.terminating)
	}
	if missing := want - len(p.active); missing > 0 && !IsSuspended(p.Job) {
		p.Create = limit(p, p.replicas(missing))
	}
}

// wanted is the number of pods that should be active.
func (p *Plan) wanted() int {
	parallelism := int(ptr.Deref(p.Job.Spec.Parallelism, 1))
	switch {
	case IsSuspended(p.Job):
		return 0
	case p.completions < 0 && p.succeeded > 0:
		return len(p.active) // the work queue is empty; its active pods may finish
	case p.completions < 0:
		return parallelism
	}
	return max(0, min(parallelism, p.completions-p.succeeded))
}

// requeueAfter requests a sync after the given time at the latest.
func (p *Plan) requeueAfter(after time.Duration) {
	if after > 0 && (p.RequeueAfter == 0 || after < p.RequeueAfter) {
		p.RequeueAfter = after
	}
}

// releaseFinalizers decides which pods lose their finalizers, and lists those
// that are to be counted as uncounted.
func (p *Plan) releaseFinalizers() {
	uncounted := p.Status.UncountedTerminatedPods
	keep := func(uid types.UID) bool { return p.uncounted.Has(uid) }
	uncounted.Succeeded, uncounted.Failed = filter(uncounted.Succeeded, keep), filter(uncounted.Failed, keep)
	p.Status.Failed += p.countedFailed
	if IsIndexed(p.Job) {
		p.Status.Succeeded, p.Status.CompletedIndexes = int32(p.succeededIndexes.Count()), p.succeededIndexes.String()
		p.Status.FailedIndexes = nil
		if p.Job.Spec.BackoffLimitPerIndex != nil {
			p.Status.FailedIndexes = ptr.To(p.failedIndexes.String())
		}
	} else {
		p.Status.Succeeded += p.countedSucceeded
	}
	deleted := sets.New[types.UID]()
	for _, d := range p.Delete {
		deleted.Insert(d.Pod.UID)
	}
	for _, pod := range p.tracked {
		if !p.canRelease(pod) {
			continue
		}
		if len(p.Release) == pods.Burst {
			p.truncated = true
			return
		}
		if !p.uncounted.Has(pod.UID) && p.hasValidIndex(pod) {
			p.listUncounted(pod)
		}
		counted := p.uncounted.Has(pod.UID) || p.newlyUncounted.Has(pod.UID)
		p.Release = append(p.Release, Release{
			Pod: pod, OnlyIfRunning: !pods.IsTerminal(pod) && !counted, AfterDelete: deleted.Has(pod.UID),
		})
	}
}

// listUncounted adds a pod to the uncounted ones, if it counts. The successes of
// an indexed job need no list, as an index cannot be counted twice.
func (p *Plan) listUncounted(pod *corev1.Pod) {
	uncounted := p.Status.UncountedTerminatedPods
	jobFails := p.termination != nil && !p.termination.succeeds // pods that still run fail with the job
	jobSucceeds := p.termination != nil && p.termination.succeeds
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		if !IsIndexed(p.Job) {
			uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
			p.newlyUncounted.Insert(pod.UID)
		}
	case jobSucceeds && pod.DeletionTimestamp != nil:
		// The controller has deleted it because the job has succeeded.
	case isFailed(p.Job, pod) || jobFails:
		if matchFailurePolicy(p.Job.Spec.PodFailurePolicy, pod).counts() {
			uncounted.Failed = append(uncounted.Failed, pod.UID)
			p.newlyUncounted.Insert(pod.UID)
		}
	}
}

// canRelease reports whether the pod's finalizer can be removed.
func (p *Plan) canRelease(pod *corev1.Pod) bool {
	if p.termination != nil || p.Job.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return isFailed(p.Job, pod) && p.delayedRelease[CompletionIndex(pod)] != pod
}

// decideStatusFirst decides whether the status must be stored before any action:
// which pods are to be counted, and that the job terminates, must survive a
// crash.
func (p *Plan) decideStatusFirst() {
	old := &p.Job.Status
	if t := p.termination; t != nil && TrueCondition(old, t.interimCondition()) == nil {
		setCondition(&p.Status, t.interimCondition(), corev1.ConditionTrue, t.reason, t.message, p.timestamp())
		p.StatusFirst = true
	}
	p.StatusFirst = p.StatusFirst || len(p.newlyUncounted) > 0 ||
		p.Status.CompletedIndexes != old.CompletedIndexes ||
		ptr.Deref(p.Status.FailedIndexes, "") != ptr.Deref(old.FailedIndexes, "")
	p.Status.Active, p.Status.Ready = int32(len(p.active)), ptr.To(countReady(p.active, nil))
	p.Status.Terminating = ptr.To(int32(len(p.terminating)))
}

// filter returns the elements for which keep holds; nil for none.
func filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// limit bounds the number of pods that one sync creates or deletes.
func limit[T any](p *Plan, list []T) []T {
	if len(list) <= pods.Burst {
		return list
	}
	p.truncated = true
	return slices.Clip(list[:pods.Burst])
}
