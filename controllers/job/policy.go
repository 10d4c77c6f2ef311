package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// ruling is what a job's pod failure policy (KEP-3329) says about a failed pod.
// The zero value is that of a failure that counts.
type ruling struct {
	action batchv1.PodFailurePolicyAction
	// message says why the job fails, if action is FailJob.
	message string
}

// counts tells whether the failure counts against the backoff limits.
func (r ruling) counts() bool { return r.action != batchv1.PodFailurePolicyActionIgnore }

// rule is the ruling of the first rule that matches the pod.
func rule(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) ruling {
	if policy == nil {
		return ruling{}
	}
	for i, r := range policy.Rules {
		what := ""
		if r.OnExitCodes != nil {
			what = matchingContainer(pod, r.OnExitCodes)
		} else {
			what = matchingCondition(pod, r.OnPodConditions)
		}
		if what != "" {
			return ruling{r.Action, fmt.Sprintf("%s matching %s rule at index %d", what, r.Action, i)}
		}
	}
	return ruling{}
}

// matchingContainer describes the first container that has failed with an exit
// code as required. The policy does not speak of exit code 0.
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

// metRule is the number of the first rule of a success policy (KEP-3998) that
// the succeeded indexes fulfil.
func metRule(policy *batchv1.SuccessPolicy, succeeded indexes, completions int) (number int, met bool) {
	if policy == nil || len(succeeded) == 0 {
		return 0, false
	}
	for i, r := range policy.Rules {
		have, want := succeeded.count(), int(ptr.Deref(r.SucceededCount, 0))
		if r.SucceededIndexes != nil {
			named := parseIndexes(*r.SucceededIndexes, completions)
			if len(named) == 0 {
				continue
			}
			have = succeeded.common(named)
			want = int(ptr.Deref(r.SucceededCount, int32(named.count())))
		}
		if have >= want {
			return i, true
		}
	}
	return 0, false
}

// isFailed tells whether a pod counts as failed. One that is being deleted does
// so unless it is to be replaced only when it has ended: an orphan of its node
// would never come to its end.
func isFailed(job *batchv1.Job, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || !replacesFailedOnly(job) && pods.IsTerminating(pod)
}

// replacesFailedOnly tells whether pods are replaced when they have failed, not
// already when they are being deleted (KEP-3939). A pod failure policy implies
// that, as it looks at how pods end.
func replacesFailedOnly(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.PodReplacementPolicy, "") == batchv1.Failed || job.Spec.PodFailurePolicy != nil
}
