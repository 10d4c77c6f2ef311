package job

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

// view is a job and the pods that it controls, as they are now.
type view struct {
	job  *batchv1.Job
	pods []*corev1.Pod
	// backoff is what earlier looks at the job have left; nil at the first.
	backoff *backoff
	now     time.Time
}

// census is what there is to know of a job's pods.
type census struct {
	view
	// completions is negative for a work queue, whose end any pod's success is.
	completions int

	active, terminating []*corev1.Pod
	// tracked are the pods that hold the finalizer, in the order in which they
	// are counted.
	tracked []*corev1.Pod
	// uncounted are the pods that the status lists as such and that hold the
	// finalizer still. Those that the status lists and that do not hold it any
	// more are to be counted: countedSucceeded and countedFailed of them.
	uncounted                       sets.Set[types.UID]
	countedSucceeded, countedFailed int32
	// newFailed are tracked pods that the status knows nothing about.
	newSucceeded, newFailed []*corev1.Pod

	// succeeded and failed are all pods that have ended so, in any state of
	// being counted, without the failures that the job ignores.
	succeeded, failed int
	// succeededIndexes and failedIndexes are those of the status with those of
	// the tracked pods. No index is in both.
	succeededIndexes, failedIndexes indexes
	// held is the latest failed pod of each index without an active one. It
	// keeps its finalizer until its successor has taken over the number of
	// failures (KEP-3850).
	held map[int]*corev1.Pod

	backoff backoff
}

func take(v view) *census {
	c := &census{view: v, completions: int(ptr.Deref(v.job.Spec.Completions, -1)), uncounted: sets.New[types.UID]()}
	for _, pod := range v.pods {
		if isTracked(pod) {
			c.tracked = append(c.tracked, pod)
		}
		if pods.IsActive(pod) {
			c.active = append(c.active, pod)
		} else if pods.IsTerminating(pod) {
			c.terminating = append(c.terminating, pod)
		}
	}
	slices.SortFunc(c.tracked, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(completionIndex(a), completionIndex(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	c.takeUncounted()
	c.takeNew()
	if isIndexed(v.job) {
		c.takeIndexes()
	}
	c.takeBackoff()
	return c
}

// takeUncounted looks for the pods that the status lists as uncounted.
func (c *census) takeUncounted() {
	tracked := sets.New[types.UID]()
	for _, pod := range c.tracked {
		tracked.Insert(pod.UID)
	}
	count := func(uids []types.UID) (counted int32) {
		for _, uid := range uids {
			if tracked.Has(uid) {
				c.uncounted.Insert(uid)
			} else {
				counted++
			}
		}
		return counted
	}
	if u := c.job.Status.UncountedTerminatedPods; u != nil {
		c.countedSucceeded, c.countedFailed = count(u.Succeeded), count(u.Failed)
		c.succeeded, c.failed = len(u.Succeeded), len(u.Failed)
	}
	c.succeeded += int(c.job.Status.Succeeded)
	c.failed += int(c.job.Status.Failed)
}

// takeNew looks for pods that have ended and that the status does not tell of.
func (c *census) takeNew() {
	for _, pod := range c.tracked {
		if c.uncounted.Has(pod.UID) || !c.hasPlace(pod) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			c.newSucceeded = append(c.newSucceeded, pod)
			c.succeeded++
		case isFailed(c.job, pod):
			c.newFailed = append(c.newFailed, pod)
			if rule(c.job.Spec.PodFailurePolicy, pod).counts() {
				c.failed++
			}
		}
	}
}

func (c *census) takeIndexes() {
	status := &c.job.Status
	before := parseIndexes(status.CompletedIndexes, c.completions)
	failedBefore := parseIndexes(ptr.Deref(status.FailedIndexes, ""), c.completions)
	var succeeded, failed []int
	for _, pod := range c.newSucceeded {
		if i := completionIndex(pod); !failedBefore.has(i) {
			succeeded = append(succeeded, i)
		}
	}
	c.succeededIndexes = before.union(indexesOf(succeeded...))
	c.succeeded = c.succeededIndexes.count()
	if c.job.Spec.BackoffLimitPerIndex == nil {
		return
	}
	for _, pod := range c.tracked {
		if i := completionIndex(pod); c.hasPlace(pod) && c.failsIndex(pod) && !c.succeededIndexes.has(i) {
			failed = append(failed, i)
		}
	}
	c.failedIndexes = failedBefore.union(indexesOf(failed...))
	c.takeHeld()
}

// failsIndex tells whether the pod's index has failed with it.
func (c *census) failsIndex(pod *corev1.Pod) bool {
	if !isFailed(c.job, pod) {
		return false
	}
	r := rule(c.job.Spec.PodFailurePolicy, pod)
	return r.action == batchv1.PodFailurePolicyActionFailIndex ||
		r.counts() && failuresBefore(pod) >= int(*c.job.Spec.BackoffLimitPerIndex)
}

func (c *census) takeHeld() {
	active := c.activeIndexes()
	c.held = map[int]*corev1.Pod{}
	for _, pod := range c.tracked {
		i := completionIndex(pod)
		if !c.hasPlace(pod) || !isFailed(c.job, pod) || active.has(i) || c.succeededIndexes.has(i) || c.failedIndexes.has(i) {
			continue
		}
		last := c.held[i]
		if last == nil || allFailuresBefore(pod) >= allFailuresBefore(last) && !finishedAt(pod).Before(finishedAt(last)) {
			c.held[i] = pod
		}
	}
}

// takeBackoff adds the pods that have ended since the last look. The first look
// of a process counts what it still finds of the pods before.
func (c *census) takeBackoff() {
	if c.view.backoff != nil {
		c.backoff = *c.view.backoff
	} else {
		var succeeded, failed []*corev1.Pod
		for _, pod := range c.pods {
			switch known := !isTracked(pod) || c.uncounted.Has(pod.UID); {
			case known && pod.Status.Phase == corev1.PodSucceeded:
				succeeded = append(succeeded, pod)
			case known && isFailed(c.job, pod):
				failed = append(failed, pod)
			}
		}
		c.backoff = backoff{}.after(succeeded, failed)
	}
	c.backoff = c.backoff.after(c.newSucceeded, c.newFailed)
}

// hasPlace tells whether the pod may count: every pod does, but those of an
// indexed job need an index that the job has.
func (c *census) hasPlace(pod *corev1.Pod) bool {
	i := completionIndex(pod)
	return !isIndexed(c.job) || i != noIndex && i < c.completions
}

func (c *census) activeIndexes() indexes { return indexesOfPods(c.active) }

func indexesOfPods(list []*corev1.Pod) indexes {
	var all []int
	for _, pod := range list {
		if i := completionIndex(pod); i != noIndex {
			all = append(all, i)
		}
	}
	return indexesOf(all...)
}

func isTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func isIndexed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, "") == batchv1.IndexedCompletion
}

func isSuspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

// noIndex is the completion index of a pod that has none.
const noIndex = -1

func completionIndex(pod *corev1.Pod) int {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}

// failuresBefore is how many pods of the same index have failed before this one,
// without those that the job ignores; allFailuresBefore is with them.
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
