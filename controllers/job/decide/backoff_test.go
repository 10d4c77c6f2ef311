package decide

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func terminatedAt(seconds ...int) (list []*corev1.Pod) {
	for _, s := range seconds {
		at := metav1.NewTime(epoch.Add(time.Duration(s) * time.Second))
		list = append(list, &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}},
		}}})
	}
	return list
}

func TestBackoffDoublesWithEachFailureInARow(t *testing.T) {
	for _, tt := range []struct {
		rule              string
		succeeded, failed []*corev1.Pod
		now               int
		want              time.Duration
	}{
		{"nothing has failed", terminatedAt(1), nil, 1, 0},
		{"the first failure", nil, terminatedAt(1), 1, 10 * time.Second},
		{"part of the time has passed", nil, terminatedAt(1), 5, 6 * time.Second},
		{"all of it has passed", nil, terminatedAt(1), 11, 0},
		{"from the last failure", nil, terminatedAt(9, 1), 9, 20 * time.Second},
		{"at most ten minutes", nil, terminatedAt(1, 2, 3, 4, 5, 6, 7, 8, 9), 9, 10 * time.Minute},
		{"failures before the last success do not matter", terminatedAt(3, 5), terminatedAt(1, 2, 4, 5), 5, 0},
		{"failures after it do", terminatedAt(3, 5), terminatedAt(1, 2, 6, 8), 8, 20 * time.Second},
	} {
		b := Backoff{}.after(tt.succeeded, tt.failed)
		if got := b.left(epoch.Add(time.Duration(tt.now) * time.Second)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.rule, got, tt.want)
		}
	}
	b := Backoff{}.after(nil, terminatedAt(1, 2)).after(nil, terminatedAt(3))
	if got := b.left(epoch.Add(3 * time.Second)); got != 40*time.Second {
		t.Errorf("failures of earlier syncs count, too: got %s", got)
	}
	if b = b.after(terminatedAt(4), nil); b.left(epoch) != 0 {
		t.Error("a success does not reset the backoff")
	}
}

func TestTerminationTimeOfPods(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.NewTime(epoch.Add(time.Duration(s) * time.Second)) }
	end := func(name string, s int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(s)}}}
	}
	notReady := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(40)}}
	for _, tt := range []struct {
		rule string
		pod  corev1.Pod
		want int
	}{
		{"with its last container", corev1.Pod{Status: corev1.PodStatus{Conditions: notReady, ContainerStatuses: []corev1.ContainerStatus{end("a", 7), end("b", 5)}}}, 7},
		{"with its sidecar", corev1.Pod{
			Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}, {Name: "init"}}},
			Status: corev1.PodStatus{
				ContainerStatuses:     []corev1.ContainerStatus{end("a", 7)},
				InitContainerStatuses: []corev1.ContainerStatus{end("side", 9), end("init", 10)},
			},
		}, 9},
		{"when it was not ready any more", corev1.Pod{Status: corev1.PodStatus{Conditions: notReady, ContainerStatuses: []corev1.ContainerStatus{end("a", 7), {Name: "b"}}}}, 40},
		{"when it was deleted", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(at(60)), DeletionGracePeriodSeconds: ptr.To[int64](30)}}, 30},
		{"not before it was created", corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(3)}}, 3},
	} {
		if got := finishedAt(&tt.pod).Sub(epoch); got != time.Duration(tt.want)*time.Second {
			t.Errorf("%s: got %s", tt.rule, got)
		}
	}
}

func TestFirstMatchingRuleOfPodFailurePolicyApplies(t *testing.T) {
	codes := func(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, container *string, values ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: op, Values: values, ContainerName: container}}
	}
	condition := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
	}}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Status: corev1.PodStatus{
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "ok", State: ended(0)}, {Name: "main", State: ended(42)}, {Name: "runs"}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: ended(7)}},
		},
	}
	disrupted := pod.DeepCopy()
	disrupted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	const fail, count = batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionCount
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	for _, tt := range []struct {
		rule  string
		rules []batchv1.PodFailurePolicyRule
		pod   *corev1.Pod
		want  policyMatch
	}{
		{"no rule", nil, pod, policyMatch{}},
		{"an exit code", []batchv1.PodFailurePolicyRule{codes(fail, in, nil, 1, 42)}, pod, policyMatch{fail, "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 0"}},
		{"another exit code", []batchv1.PodFailurePolicyRule{codes(fail, in, nil, 1)}, pod, policyMatch{}},
		{"exit code 0 never matches", []batchv1.PodFailurePolicyRule{codes(fail, notIn, nil, 7, 42)}, pod, policyMatch{}},
		{"any other exit code", []batchv1.PodFailurePolicyRule{codes(count, notIn, nil, 42)}, pod, policyMatch{count, "Container init for pod ns/p failed with exit code 7 matching Count rule at index 0"}},
		{"of a container", []batchv1.PodFailurePolicyRule{codes(count, in, ptr.To("ok"), 42), codes(count, in, ptr.To("init"), 7)}, pod, policyMatch{count, "Container init for pod ns/p failed with exit code 7 matching Count rule at index 1"}},
		{"a condition", []batchv1.PodFailurePolicyRule{condition, codes(fail, in, nil, 42)}, disrupted, policyMatch{batchv1.PodFailurePolicyActionIgnore, "Pod ns/p has condition DisruptionTarget matching Ignore rule at index 0"}},
		{"not this condition", []batchv1.PodFailurePolicyRule{condition}, pod, policyMatch{}},
	} {
		if got := matchFailurePolicy(&batchv1.PodFailurePolicy{Rules: tt.rules}, tt.pod); got != tt.want {
			t.Errorf("%s: got %+v", tt.rule, got)
		}
	}
}
