package decide

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

// termination is why a job terminates. It finishes once its pods have terminated:
// until then the condition FailureTarget or SuccessCriteriaMet announces Failed
// or Complete.
type termination struct {
	succeeds        bool
	reason, message string
}

func (t *termination) interimCondition() batchv1.JobConditionType {
	if t.succeeds {
		return batchv1.JobSuccessCriteriaMet
	}
	return batchv1.JobFailureTarget
}

func (t *termination) finalCondition() batchv1.JobConditionType {
	if t.succeeds {
		return batchv1.JobComplete
	}
	return batchv1.JobFailed
}

// terminates returns the first reason for which the job terminates, or nil.
func (s *state) terminates(start *metav1.Time) *termination {
	for _, reason := range []func() *termination{
		s.hasSuccessCriteriaMet, s.hasFailureTarget,
		s.failsByPolicy, s.exceedsBackoffLimit,
		func() *termination { return s.exceedsDeadline(start) },
		s.exceedsFailedIndexes, s.hasFailedIndexes,
		s.meetsSuccessPolicy, s.isComplete,
	} {
		if t := reason(); t != nil {
			return t
		}
	}
	return nil
}

func (s *state) hasSuccessCriteriaMet() *termination {
	return s.recorded(batchv1.JobSuccessCriteriaMet)
}
func (s *state) hasFailureTarget() *termination { return s.recorded(batchv1.JobFailureTarget) }

// recorded returns the reason that an earlier sync has stored.
func (s *state) recorded(target batchv1.JobConditionType) *termination {
	condition := TrueCondition(&s.Job.Status, target)
	if condition == nil {
		return nil
	}
	return &termination{target == batchv1.JobSuccessCriteriaMet, condition.Reason, condition.Message}
}

// failsByPolicy checks counted pods, too: a crash may have kept the condition
// FailureTarget from being stored after a pod was counted.
func (s *state) failsByPolicy() *termination {
	for _, pod := range s.Pods {
		if !isFailed(s.Job, pod) {
			continue
		}
		if r := matchFailurePolicy(s.Job.Spec.PodFailurePolicy, pod); r.action == batchv1.PodFailurePolicyActionFailJob {
			return &termination{false, batchv1.JobReasonPodFailurePolicy, r.message}
		}
	}
	return nil
}

func (s *state) exceedsBackoffLimit() *termination {
	limit := int(ptr.Deref(s.Job.Spec.BackoffLimit, math.MaxInt32))
	if s.failed <= limit && !s.restartsExceed(limit) {
		return nil
	}
	return &termination{false, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}
}

// restartsExceed reports whether the restarts of containers have reached the
// limit, for pods with restartPolicy OnFailure.
func (s *state) restartsExceed(limit int) bool {
	if s.Job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0
	for _, pod := range s.Pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int(status.RestartCount)
		}
	}
	return restarts > 0 && restarts >= limit
}

func (s *state) exceedsDeadline(start *metav1.Time) *termination {
	if left, limited := s.deadline(start); !limited || left > 0 {
		return nil
	}
	return &termination{false, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}
}

// deadline returns the time left of activeDeadlineSeconds, and whether the job
// has such a limit now.
func (s *state) deadline(start *metav1.Time) (left time.Duration, limited bool) {
	seconds := s.Job.Spec.ActiveDeadlineSeconds
	if seconds == nil || start == nil || IsSuspended(s.Job) {
		return 0, false
	}
	return time.Duration(*seconds)*time.Second - s.Now.Sub(start.Time), true
}

func (s *state) exceedsFailedIndexes() *termination {
	limit := s.Job.Spec.MaxFailedIndexes
	if limit == nil || s.failedIndexes.Count() <= int(*limit) {
		return nil
	}
	return &termination{false, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"}
}

// hasFailedIndexes applies when every index has succeeded or failed.
func (s *state) hasFailedIndexes() *termination {
	failed := s.failedIndexes.Count()
	if failed == 0 || failed+s.succeededIndexes.Count() < s.completions {
		return nil
	}
	return &termination{false, batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
}

func (s *state) meetsSuccessPolicy() *termination {
	number, met := matchSuccessPolicy(s.Job.Spec.SuccessPolicy, s.succeededIndexes, s.completions)
	if !met {
		return nil
	}
	return &termination{true, batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", number)}
}

// isComplete applies to a work queue when a pod has succeeded and no pod is
// active, and to any other job when it has reached its completions, even if more
// pods are active.
func (s *state) isComplete() *termination {
	noneActive := len(s.active) == 0
	switch {
	case s.completions < 0 && (s.succeeded == 0 || !noneActive):
		return nil
	case s.succeeded < s.completions:
		return nil
	case s.Job.DeletionTimestamp != nil && !noneActive:
		return nil // the garbage collector deletes the active pods
	}
	return &termination{true, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"}
}

// IsFinished reports whether the job is complete or has failed.
func IsFinished(job *batchv1.Job) bool {
	return TrueCondition(&job.Status, batchv1.JobComplete) != nil || TrueCondition(&job.Status, batchv1.JobFailed) != nil
}

// TrueCondition returns the condition if its status is true, and nil otherwise.
func TrueCondition(status *batchv1.JobStatus, name batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == name && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// setCondition sets a condition and reports whether that changes it. It does not
// add a condition that is false.
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
