package decide

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// policyMatch is the action of a job's pod failure policy (KEP-3329) for a failed
// pod. The zero value is that of a failure that counts.
type policyMatch struct {
	action batchv1.PodFailurePolicyAction
	// message is that of the job's condition, if action is FailJob.
	message string
}

// counts reports whether the failure counts against the backoff limits.
func (r policyMatch) counts() bool { return r.action != batchv1.PodFailurePolicyActionIgnore }

// matchFailurePolicy returns the action of the first rule that matches the pod.
func matchFailurePolicy(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) policyMatch {
	if policy == nil {
		return policyMatch{}
	}
	for i, r := range policy.Rules {
		what := ""
		if r.OnExitCodes != nil {
			what = matchingContainer(pod, r.OnExitCodes)
		} else {
			what = matchingCondition(pod, r.OnPodConditions)
		}
		if what != "" {
			return policyMatch{r.Action, fmt.Sprintf("%s matching %s rule at index %d", what, r.Action, i)}
		}
	}
	return policyMatch{}
}

// matchingContainer describes the first container that has failed with one of
// the required exit codes. Exit code 0 never matches.
func matchingContainer(pod *corev1.Pod, required *batchv1.PodFailurePolicyOnExitCodesRequirement) string {
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		end := c.State.Terminated
		if end == nil || end.ExitCode == 0 || required.ContainerName != nil && *required.ContainerName != c.Name {
			continue
		}
		listed := slices.Contains(required.Values, end.ExitCode)
		if listed == (required.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, pod.Namespace, pod.Name, end.ExitCode)
		}
	}
	return ""
}

func matchingCondition(pod *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) string {
	for _, c := range pod.Status.Conditions {
		for _, p := range patterns {
			if c.Type == p.Type && c.Status == p.Status {
				return fmt.Sprintf("Pod %s/%s has condition %s", pod.Namespace, pod.Name, c.Type)
			}
		}
	}
	return ""
}

// matchSuccessPolicy returns the number of the first rule of a success policy
// (KEP-3998) that the succeeded indexes meet.
func matchSuccessPolicy(policy *batchv1.SuccessPolicy, succeeded Indexes, completions int) (number int, met bool) {
	if policy == nil || len(succeeded) == 0 {
		return 0, false
	}
	for i, r := range policy.Rules {
		have, want := succeeded.Count(), int(ptr.Deref(r.SucceededCount, 0))
		if r.SucceededIndexes != nil {
			named := ParseIndexes(*r.SucceededIndexes, completions)
			if len(named) == 0 {
				continue
			}
			have = succeeded.common(named)
			want = int(ptr.Deref(r.SucceededCount, int32(named.Count())))
		}
		if have >= want {
			return i, true
		}
	}
	return 0, false
}

// isFailed reports whether a pod counts as failed. A pod that is being deleted
// counts, unless podReplacementPolicy is Failed: a pod of a lost node would never
// terminate.
func isFailed(job *batchv1.Job, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || !replacesFailedOnly(job) && pods.IsTerminating(pod)
}

// replacesFailedOnly reports whether pods are replaced only when they have failed,
// not already when they are being deleted (KEP-3939). A pod failure policy implies
// that, as it depends on how pods terminate.
func replacesFailedOnly(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.PodReplacementPolicy, "") == batchv1.Failed || job.Spec.PodFailurePolicy != nil
}
