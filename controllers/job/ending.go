package job

import (
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ending is why a job is to end. The job ends once its pods have: until then
// the condition FailureTarget or SuccessCriteriaMet stands for what will be
// Failed or Complete.
type ending struct {
	succeeds        bool
	reason, message string
}

// target and final are the types of the two conditions.
func (e *ending) target() batchv1.JobConditionType {
	if e.succeeds {
		return batchv1.JobSuccessCriteriaMet
	}
	return batchv1.JobFailureTarget
}

func (e *ending) final() batchv1.JobConditionType {
	if e.succeeds {
		return batchv1.JobComplete
	}
	return batchv1.JobFailed
}

// end is the first reason for which the job is to end, or nil.
func (c *census) end(start *metav1.Time) *ending {
	for _, ends := range []func() *ending{
		c.succeedsAlready, c.failsAlready,
		c.failsByPolicy, c.exceedsBackoffLimit,
		func() *ending { return c.exceedsDeadline(start) },
		c.exceedsFailedIndexes, c.hasFailedIndexes,
		c.meetsSuccessPolicy, c.isComplete,
	} {
		if e := ends(); e != nil {
			return e
		}
	}
	return nil
}

func (c *census) succeedsAlready() *ending { return c.decided(batchv1.JobSuccessCriteriaMet) }
func (c *census) failsAlready() *ending    { return c.decided(batchv1.JobFailureTarget) }

func (c *census) decided(target batchv1.JobConditionType) *ending {
	condition := trueCondition(&c.job.Status, target)
	if condition == nil {
		return nil
	}
	return &ending{target == batchv1.JobSuccessCriteriaMet, condition.Reason, condition.Message}
}

// failsByPolicy looks at the pods that are counted, too: the policy may have
// been the reason for which a crash has kept from the status.
func (c *census) failsByPolicy() *ending {
	for _, pod := range c.pods {
		if !isFailed(c.job, pod) {
			continue
		}
		if r := rule(c.job.Spec.PodFailurePolicy, pod); r.action == batchv1.PodFailurePolicyActionFailJob {
			return &ending{false, batchv1.JobReasonPodFailurePolicy, r.message}
		}
	}
	return nil
}

func (c *census) exceedsBackoffLimit() *ending {
	limit := int(ptr.Deref(c.job.Spec.BackoffLimit, math.MaxInt32))
	if c.failed <= limit && !c.restartsExceed(limit) {
		return nil
	}
	return &ending{false, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}
}

// restartsExceed compares the restarts of containers with the limit when pods
// restart their containers themselves.
func (c *census) restartsExceed(limit int) bool {
	if c.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0
	for _, pod := range c.pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int(s.RestartCount)
		}
	}
	return restarts > 0 && restarts >= limit
}

func (c *census) exceedsDeadline(start *metav1.Time) *ending {
	if left, limited := c.deadline(start); !limited || left > 0 {
		return nil
	}
	return &ending{false, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}
}

// deadline is the time that is left of activeDeadlineSeconds, if it runs.
func (c *census) deadline(start *metav1.Time) (left time.Duration, limited bool) {
	seconds := c.job.Spec.ActiveDeadlineSeconds
	if seconds == nil || start == nil || isSuspended(c.job) {
		return 0, false
	}
	return time.Duration(*seconds)*time.Second - c.now.Sub(start.Time), true
}

func (c *census) exceedsFailedIndexes() *ending {
	limit := c.job.Spec.MaxFailedIndexes
	if limit == nil || c.failedIndexes.count() <= int(*limit) {
		return nil
	}
	return &ending{false, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"}
}

// hasFailedIndexes waits until every index has succeeded or failed.
func (c *census) hasFailedIndexes() *ending {
	failed := c.failedIndexes.count()
	if failed == 0 || failed+c.succeededIndexes.count() < c.completions {
		return nil
	}
	return &ending{false, batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
}

func (c *census) meetsSuccessPolicy() *ending {
	number, met := metRule(c.job.Spec.SuccessPolicy, c.succeededIndexes, c.completions)
	if !met {
		return nil
	}
	return &ending{true, batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", number)}
}

// isComplete: a work queue is when a pod has succeeded and the others have
// ended, too. Any other job is at the number of its completions, whatever runs
// still beyond them.
func (c *census) isComplete() *ending {
	idle := len(c.active) == 0
	switch {
	case c.completions < 0 && (c.succeeded == 0 || !idle):
		return nil
	case c.succeeded < c.completions:
		return nil
	case c.job.DeletionTimestamp != nil && !idle:
		return nil // the active pods are not ours to delete any more
	}
	return &ending{true, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"}
}

// isFinished tells whether the job has come to its end.
func isFinished(job *batchv1.Job) bool {
	return trueCondition(&job.Status, batchv1.JobComplete) != nil || trueCondition(&job.Status, batchv1.JobFailed) != nil
}

func trueCondition(status *batchv1.JobStatus, name batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == name && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// setCondition gives a condition a status, and tells whether that changes it. A
// condition that was never true does not become false.
func setCondition(status *batchv1.JobStatus, name batchv1.JobConditionType, value corev1.ConditionStatus, reason, message string, now metav1.Time) bool {
	condition := batchv1.JobCondition{
		Type: name, Status: value, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now,
	}
	i := slices.IndexFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == name })
	if i < 0 {
		if value == corev1.ConditionFalse {
			return false
		}
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	old := status.Conditions[i]
	if old.Status == value && old.Reason == reason && old.Message == message {
		return false
	}
	status.Conditions[i] = condition
	return true
}
