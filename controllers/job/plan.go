package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// plan is what to do about a job now, in this order:
//
//  1. write status, if record says so,
//  2. create pods, or delete the surplus, or stop the active ones,
//  3. take the finalizer from the pods of release,
//  4. write the status that settle makes of the outcome.
//
// A pod is counted in two steps, so that a crash between any two writes neither
// loses nor doubles it: first its UID is written among the uncounted, then the
// finalizer goes, and then the UID becomes a number.
type plan struct {
	*census
	status batchv1.JobStatus
	record bool
	ending *ending

	create []replica
	// surplus are active pods that there should not be. They do not count,
	// therefore their finalizers go first.
	surplus []*corev1.Pod
	// stop are the active pods of a job that ends.
	stop    []*corev1.Pod
	release []*corev1.Pod
	// fresh are the pods that status lists as uncounted for the first time.
	fresh sets.Set[types.UID]

	// more says that there was more to do than one look at a job may.
	more bool
	// again is when the job must be looked at though nothing happens; zero is
	// never.
	again   time.Duration
	notices []notice
}

// notice is what users are told.
type notice struct{ kind, reason, message string }

func normal(reason, message string) notice { return notice{corev1.EventTypeNormal, reason, message} }

// decide is the whole decision about a job that has not finished.
func decide(v view) *plan {
	p := &plan{census: take(v), status: *v.job.Status.DeepCopy(), fresh: sets.New[types.UID]()}
	if p.status.UncountedTerminatedPods == nil {
		p.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	p.resume()
	if p.ending = p.end(p.status.StartTime); p.ending != nil {
		p.stop = p.active
	} else if v.job.DeletionTimestamp == nil {
		p.suspend()
		p.manage()
	}
	p.account()
	p.recordFirst()
	return p
}

// first tells whether this is the first look of this process at the job.
func (p *plan) first() bool { return p.view.backoff == nil }

// stamp is the present as the API holds it, in seconds.
func (p *plan) stamp() metav1.Time { return metav1.NewTime(p.now.Truncate(time.Second)) }

// resume starts the clock of a job that begins, or goes on after a pause.
func (p *plan) resume() {
	if isSuspended(p.job) {
		return
	}
	if setCondition(&p.status, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", p.stamp()) {
		p.notices = append(p.notices, normal("Resumed", "Job resumed"))
		p.status.StartTime = nil
	}
	if p.status.StartTime == nil {
		p.status.StartTime = ptr.To(p.stamp())
	}
}

// suspend stops the clock. The scheduling directives of a job may change while
// it has no start time.
func (p *plan) suspend() {
	if isSuspended(p.job) && setCondition(&p.status, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", p.stamp()) {
		p.notices = append(p.notices, normal("Suspended", "Job suspended"))
		p.status.StartTime = nil
	}
}

// manage decides which pods to delete or create. It does not do both at once.
func (p *plan) manage() {
	if left, limited := p.deadline(p.status.StartTime); limited {
		p.lookAgain(left)
	}
	want := p.wanted()
	if p.surplus = p.surplusPods(want); len(p.surplus) > 0 {
		p.surplus, p.more = burst(p.surplus)
		return
	}
	if replacesFailedOnly(p.job) {
		want -= len(p.terminating)
	}
	if missing := want - len(p.active); missing > 0 && !isSuspended(p.job) {
		p.create = p.replicas(missing)
		p.create, p.more = burst(p.create)
	}
}

// wanted is how many pods should be active.
func (p *plan) wanted() int {
	parallelism := int(ptr.Deref(p.job.Spec.Parallelism, 1))
	switch {
	case isSuspended(p.job):
		return 0
	case p.completions < 0 && p.succeeded > 0:
		return len(p.active) // the queue is empty, but who works may end it
	case p.completions < 0:
		return parallelism
	}
	return max(0, min(parallelism, p.completions-p.succeeded))
}

// lookAgain asks for a look after a time, or earlier.
func (p *plan) lookAgain(after time.Duration) {
	if after > 0 && (p.again == 0 || after < p.again) {
		p.again = after
	}
}

// account decides whose finalizers go, and lists those that are to be counted.
func (p *plan) account() {
	uncounted := p.status.UncountedTerminatedPods
	keep := func(uid types.UID) bool { return p.uncounted.Has(uid) }
	uncounted.Succeeded, uncounted.Failed = only(uncounted.Succeeded, keep), only(uncounted.Failed, keep)
	p.status.Failed += p.countedFailed
	if isIndexed(p.job) {
		p.status.Succeeded, p.status.CompletedIndexes = int32(p.succeededIndexes.count()), p.succeededIndexes.String()
		p.status.FailedIndexes = nil
		if p.job.Spec.BackoffLimitPerIndex != nil {
			p.status.FailedIndexes = ptr.To(p.failedIndexes.String())
		}
	} else {
		p.status.Succeeded += p.countedSucceeded
	}
	for _, pod := range p.tracked {
		if !p.canRelease(pod) {
			continue
		}
		if len(p.release) == pods.Burst {
			p.more = true
			return
		}
		p.release = append(p.release, pod)
		if !p.uncounted.Has(pod.UID) && p.hasPlace(pod) {
			p.list(pod)
		}
	}
}

// list adds a pod to the uncounted, if it counts. The successes of an indexed
// job do not need that, as an index cannot be counted twice.
func (p *plan) list(pod *corev1.Pod) {
	uncounted := p.status.UncountedTerminatedPods
	fails := p.ending != nil && !p.ending.succeeds // whoever has not ended yet fails with the job
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		if !isIndexed(p.job) {
			uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
			p.fresh.Insert(pod.UID)
		}
	case p.ending != nil && p.ending.succeeds && pod.DeletionTimestamp != nil:
		// It has been stopped.
	case isFailed(p.job, pod) || fails:
		if rule(p.job.Spec.PodFailurePolicy, pod).counts() {
			uncounted.Failed = append(uncounted.Failed, pod.UID)
			p.fresh.Insert(pod.UID)
		}
	}
}

// canRelease tells whether the pod's finalizer can go.
func (p *plan) canRelease(pod *corev1.Pod) bool {
	if p.ending != nil || p.job.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return isFailed(p.job, pod) && p.held[completionIndex(pod)] != pod
}

// recordFirst decides what must be known for good before anything is done: who
// is to be counted, and that the job ends.
func (p *plan) recordFirst() {
	old := &p.job.Status
	if p.ending != nil && trueCondition(old, p.ending.target()) == nil {
		setCondition(&p.status, p.ending.target(), corev1.ConditionTrue, p.ending.reason, p.ending.message, p.stamp())
		p.record = true
	}
	p.record = p.record || len(p.fresh) > 0 ||
		p.status.CompletedIndexes != old.CompletedIndexes ||
		ptr.Deref(p.status.FailedIndexes, "") != ptr.Deref(old.FailedIndexes, "")
	p.status.Active, p.status.Ready = int32(len(p.active)), ptr.To(readyOf(p.active, nil))
	p.status.Terminating = ptr.To(int32(len(p.terminating)))
}

// outcome is what was done of a plan.
type outcome struct {
	// created counts the new pods, gone are the active pods that were deleted.
	created int
	gone    sets.Set[types.UID]
	// released are the pods without finalizer now. The missed ones had none
	// before: an earlier process has counted them, and the caches of this one
	// did not know at its first look. Later, it has been this process itself,
	// by a request whose answer got lost.
	released, missed sets.Set[types.UID]
}

// settle is the status after the plan, and what to tell users when it is
// written.
func (p *plan) settle(o outcome) (batchv1.JobStatus, []notice) {
	status := *p.status.DeepCopy()
	uncounted := status.UncountedTerminatedPods
	remains := func(uid types.UID) bool { return !o.released.Has(uid) && !o.missed.Has(uid) }
	count := func(uids []types.UID) int32 {
		return int32(len(only(uids, func(uid types.UID) bool { return o.released.Has(uid) })))
	}
	status.Succeeded += count(uncounted.Succeeded)
	status.Failed += count(uncounted.Failed)
	uncounted.Succeeded, uncounted.Failed = only(uncounted.Succeeded, remains), only(uncounted.Failed, remains)

	status.Active = int32(len(p.active) - len(o.gone) + o.created)
	status.Ready = ptr.To(readyOf(p.active, o.gone))
	status.Terminating = ptr.To(int32(len(p.terminating) + len(o.gone)))
	if p.ending == nil || p.more || status.Active > 0 || *status.Terminating > 0 || len(uncounted.Succeeded)+len(uncounted.Failed) > 0 {
		return status, nil
	}
	return status, p.finish(&status)
}

// finish adds the last condition.
func (p *plan) finish(status *batchv1.JobStatus) []notice {
	setCondition(status, p.ending.final(), corev1.ConditionTrue, p.ending.reason, p.ending.message, p.stamp())
	// Only a suspended job that asks for nothing ends without having started.
	if status.StartTime == nil && !(isSuspended(p.job) && p.completions == 0) {
		status.StartTime = ptr.To(p.stamp())
	}
	if !p.ending.succeeds {
		return []notice{{corev1.EventTypeWarning, p.ending.reason, p.ending.message}}
	}
	// Another machine's clock may have been ahead.
	end := p.stamp()
	if end.Before(status.StartTime) {
		end = *status.StartTime
	}
	status.CompletionTime = &end
	var events []notice
	if p.completions >= 0 && int(status.Succeeded) > p.completions {
		events = append(events, notice{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
	}
	return append(events, normal("Completed", "Job completed"))
}

func readyOf(active []*corev1.Pod, without sets.Set[types.UID]) int32 {
	ready := int32(0)
	for _, pod := range active {
		if pods.IsReady(pod) && !without.Has(pod.UID) {
			ready++
		}
	}
	return ready
}

// only are the elements for which keep holds; nil for none.
func only[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// burst bounds how many pods one look at a job handles.
func burst[T any](list []T) (first []T, more bool) {
	if len(list) <= pods.Burst {
		return list, false
	}
	return slices.Clip(list[:pods.Burst]), true
}

func sameStatus(a, b *batchv1.JobStatus) bool { return apiequality.Semantic.DeepEqual(a, b) }
