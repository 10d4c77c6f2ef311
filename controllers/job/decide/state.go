package decide

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// Input is a job and the pods that it controls.
type Input struct {
	Job  *batchv1.Job
	Pods []*corev1.Pod
	// PreviousBackoff is that of the last sync of this process; nil at the first.
	PreviousBackoff *Backoff
	Now             time.Time
}

// state is what follows from an Input alone.
type state struct {
	Input
	// completions is negative for a work queue, which is complete when any of its
	// pods has succeeded.
	completions int

	active, terminating []*corev1.Pod
	// tracked are the pods with the finalizer, in the order in which they are
	// counted.
	tracked []*corev1.Pod
	// uncounted are the pods that the stored status lists as uncounted and that
	// have the finalizer. Those that it lists and that do not have it any more are
	// to be counted: countedSucceeded and countedFailed of them.
	uncounted                       sets.Set[types.UID]
	countedSucceeded, countedFailed int32
	// newlySucceeded and newlyFailed are tracked pods that have terminated and
	// that the stored status does not list.
	newlySucceeded, newlyFailed []*corev1.Pod

	// succeeded and failed count all terminated pods, counted or not, without the
	// failures that the pod failure policy ignores.
	succeeded, failed int
	// succeededIndexes and failedIndexes are those of the stored status with those
	// of the tracked pods. They are disjoint.
	succeededIndexes, failedIndexes Indexes
	// delayedRelease is the latest failed pod of each index without an active one.
	// It keeps its finalizer until its replacement has taken over the number of
	// failures (KEP-3850).
	delayedRelease map[int]*corev1.Pod

	backoff Backoff
}

func observe(in Input) *state {
	s := &state{Input: in, completions: int(ptr.Deref(in.Job.Spec.Completions, -1)), uncounted: sets.New[types.UID]()}
	for _, pod := range in.Pods {
		if IsTracked(pod) {
			s.tracked = append(s.tracked, pod)
		}
		if pods.IsActive(pod) {
			s.active = append(s.active, pod)
		} else if pods.IsTerminating(pod) {
			s.terminating = append(s.terminating, pod)
		}
	}
	slices.SortFunc(s.tracked, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(CompletionIndex(a), CompletionIndex(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	s.observeUncounted()
	s.observeTerminated()
	if IsIndexed(in.Job) {
		s.observeIndexes()
	}
	s.observeBackoff()
	return s
}

// observeUncounted tells the uncounted pods of the stored status that still have
// the finalizer from those that lost it.
func (s *state) observeUncounted() {
	tracked := sets.New[types.UID]()
	for _, pod := range s.tracked {
		tracked.Insert(pod.UID)
	}
	count := func(uids []types.UID) (counted int32) {
		for _, uid := range uids {
			if tracked.Has(uid) {
				s.uncounted.Insert(uid)
			} else {
				counted++
			}
		}
		return counted
	}
	if u := s.Job.Status.UncountedTerminatedPods; u != nil {
		s.countedSucceeded, s.countedFailed = count(u.Succeeded), count(u.Failed)
		s.succeeded, s.failed = len(u.Succeeded), len(u.Failed)
	}
	s.succeeded += int(s.Job.Status.Succeeded)
	s.failed += int(s.Job.Status.Failed)
}

// observeTerminated collects the tracked pods that have terminated and that the
// stored status does not list.
func (s *state) observeTerminated() {
	for _, pod := range s.tracked {
		if s.uncounted.Has(pod.UID) || !s.hasValidIndex(pod) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			s.newlySucceeded = append(s.newlySucceeded, pod)
			s.succeeded++
		case isFailed(s.Job, pod):
			s.newlyFailed = append(s.newlyFailed, pod)
			if matchFailurePolicy(s.Job.Spec.PodFailurePolicy, pod).counts() {
				s.failed++
			}
		}
	}
}

func (s *state) observeIndexes() {
	status := &s.Job.Status
	before := ParseIndexes(status.CompletedIndexes, s.completions)
	failedBefore := ParseIndexes(ptr.Deref(status.FailedIndexes, ""), s.completions)
	var succeeded, failed []int
	for _, pod := range s.newlySucceeded {
		if i := CompletionIndex(pod); !failedBefore.has(i) {
			succeeded = append(succeeded, i)
		}
	}
	s.succeededIndexes = before.Union(IndexesOf(succeeded...))
	s.succeeded = s.succeededIndexes.Count()
	if s.Job.Spec.BackoffLimitPerIndex == nil {
		return
	}
	for _, pod := range s.tracked {
		if i := CompletionIndex(pod); s.hasValidIndex(pod) && s.failsIndex(pod) && !s.succeededIndexes.has(i) {
			failed = append(failed, i)
		}
	}
	s.failedIndexes = failedBefore.Union(IndexesOf(failed...))
	s.observeDelayedRelease()
}

// failsIndex reports whether the failure of the pod fails its index.
func (s *state) failsIndex(pod *corev1.Pod) bool {
	if !isFailed(s.Job, pod) {
		return false
	}
	r := matchFailurePolicy(s.Job.Spec.PodFailurePolicy, pod)
	return r.action == batchv1.PodFailurePolicyActionFailIndex ||
		r.counts() && failuresBefore(pod) >= int(*s.Job.Spec.BackoffLimitPerIndex)
}

func (s *state) observeDelayedRelease() {
	active := s.activeIndexes()
	s.delayedRelease = map[int]*corev1.Pod{}
	for _, pod := range s.tracked {
		i := CompletionIndex(pod)
		if !s.hasValidIndex(pod) || !isFailed(s.Job, pod) || active.has(i) || s.succeededIndexes.has(i) || s.failedIndexes.has(i) {
			continue
		}
		last := s.delayedRelease[i]
		if last == nil || allFailuresBefore(pod) >= allFailuresBefore(last) && !finishedAt(pod).Before(finishedAt(last)) {
			s.delayedRelease[i] = pod
		}
	}
}

// observeBackoff adds the pods that have terminated since the last sync. The
// first sync of a process starts from the terminated pods that still exist.
func (s *state) observeBackoff() {
	if s.PreviousBackoff != nil {
		s.backoff = *s.PreviousBackoff
	} else {
		var succeeded, failed []*corev1.Pod
		for _, pod := range s.Pods {
			switch known := !IsTracked(pod) || s.uncounted.Has(pod.UID); {
			case known && pod.Status.Phase == corev1.PodSucceeded:
				succeeded = append(succeeded, pod)
			case known && isFailed(s.Job, pod):
				failed = append(failed, pod)
			}
		}
		s.backoff = Backoff{}.after(succeeded, failed)
	}
	s.backoff = s.backoff.after(s.newlySucceeded, s.newlyFailed)
}

// hasValidIndex reports whether the pod can count: the pods of an indexed job
// need an index below its completions.
func (s *state) hasValidIndex(pod *corev1.Pod) bool {
	i := CompletionIndex(pod)
	return !IsIndexed(s.Job) || i != NoIndex && i < s.completions
}

func (s *state) activeIndexes() Indexes { return indexesOfPods(s.active) }

func indexesOfPods(list []*corev1.Pod) Indexes {
	var all []int
	for _, pod := range list {
		if i := CompletionIndex(pod); i != NoIndex {
			all = append(all, i)
		}
	}
	return IndexesOf(all...)
}

// IsTracked reports whether the pod has the finalizer
// batch.kubernetes.io/job-tracking.
func IsTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// IsIndexed reports whether the pods of the job have completion indexes.
func IsIndexed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, "") == batchv1.IndexedCompletion
}

// IsSuspended reports whether the job is suspended.
func IsSuspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

// NoIndex is the completion index of a pod without one.
const NoIndex = -1

// CompletionIndex is the pod's index in an indexed job, or NoIndex.
func CompletionIndex(pod *corev1.Pod) int {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return NoIndex
	}
	return i
}

// failuresBefore is the number of pods of the same index that have failed before
// this one, without the failures that the pod failure policy ignores;
// allFailuresBefore includes them.
func failuresBefore(pod *corev1.Pod) int {
	return annotatedCount(pod, batchv1.JobIndexFailureCountAnnotation)
}

func allFailuresBefore(pod *corev1.Pod) int {
	return failuresBefore(pod) + annotatedCount(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

func annotatedCount(pod *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(pod.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}
