package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var (
	noon    = time.Date(2030, 1, 1, 12, 0, 0, 5e8, time.UTC)
	earlier = metav1.Time{Time: noon.Add(-time.Hour).Truncate(time.Second)}
)

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon}}}
}

func container(name string, restarts int32, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: restarts, State: state}
}

func TestATerminalPhaseIsFinal(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	old := &corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "no room", StartTime: &earlier,
		ContainerStatuses: []corev1.ContainerStatus{container("a", 4, running())},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
		},
	}
	next := &corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: noon},
		ContainerStatuses: []corev1.ContainerStatus{container("b", 0, running()), container("a", 1, running())},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		},
	}
	got := nextStatus(pod, old, next, noon)
	second := metav1.Time{Time: noon.Truncate(time.Second)}
	want := &corev1.PodStatus{
		ObservedGeneration: 3, Phase: corev1.PodFailed, Reason: "Evicted", Message: "no room", StartTime: &earlier,
		ContainerStatuses: []corev1.ContainerStatus{
			container("a", 4, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second}}),
			container("b", 0, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second}}),
		},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: second},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if next.ContainerStatuses[0].Name != "b" {
		t.Error("the status that was given has been changed")
	}
}

func TestStatusesAreInSpecOrderAndMessagesShareTheirLimit(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "second"}, {Name: "first"}}, Containers: []corev1.Container{{Name: "c"}},
	}}
	state := ended(1)
	state.Terminated.Message = strings.Repeat("x", 20_000)
	s := &corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{container("first", 0, state), container("second", 0, running())}}
	normalize(pod, s)
	if s.InitContainerStatuses[0].Name != "second" || s.InitContainerStatuses[1].Name != "first" {
		t.Errorf("got %v", s.InitContainerStatuses)
	}
	if got := len(s.InitContainerStatuses[1].State.Terminated.Message); got != 12<<10/3 {
		t.Errorf("a message of %d bytes is kept", got)
	}
}

func TestTerminatedContainersThatAreNotRestartedMustNotRun(t *testing.T) {
	sidecar := corev1.Container{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	for name, c := range map[string]struct {
		policy    corev1.RestartPolicy
		code      int32
		init      bool
		container corev1.Container
		beside    []corev1.ContainerRestartRule
		valid     bool
	}{
		"beside one that restarts all": {policy: corev1.RestartPolicyNever, container: corev1.Container{Name: "s"}, valid: true,
			beside: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}},
		"never":                 {policy: corev1.RestartPolicyNever, container: corev1.Container{Name: "s"}},
		"never, failed":         {policy: corev1.RestartPolicyNever, code: 1, container: corev1.Container{Name: "s"}},
		"on failure, succeeded": {policy: corev1.RestartPolicyOnFailure, container: corev1.Container{Name: "s"}},
		"on failure, failed":    {policy: corev1.RestartPolicyOnFailure, code: 1, container: corev1.Container{Name: "s"}, valid: true},
		"always":                {policy: corev1.RestartPolicyAlways, container: corev1.Container{Name: "s"}, valid: true},
		"init, never":           {policy: corev1.RestartPolicyNever, init: true, container: corev1.Container{Name: "s"}},
		"sidecar":               {policy: corev1.RestartPolicyNever, init: true, container: sidecar, valid: true},
	} {
		spec := &corev1.PodSpec{RestartPolicy: c.policy}
		old, next := &corev1.PodStatus{}, &corev1.PodStatus{}
		if before, after := []corev1.ContainerStatus{container("s", 0, ended(c.code))}, []corev1.ContainerStatus{container("s", 1, running())}; c.init {
			spec.InitContainers = []corev1.Container{c.container}
			old.InitContainerStatuses, next.InitContainerStatuses = before, after
		} else {
			spec.Containers = []corev1.Container{c.container}
			old.ContainerStatuses, next.ContainerStatuses = before, after
		}
		if c.beside != nil {
			spec.Containers = append(spec.Containers, corev1.Container{Name: "other", RestartPolicyRules: c.beside})
		}
		if err := checkTransition(spec, old, next); (err == nil) != c.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMergeKeepsOtherWritersConditions(t *testing.T) {
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue}
	api := &corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, NominatedNodeName: "n", ObservedGeneration: 4,
		Conditions:            []corev1.PodCondition{gate, {Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "c"}},
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	disrupted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}
	want := &corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: 2, Conditions: []corev1.PodCondition{ready, disrupted}}

	got := merge(api, want, false)
	expect := api.DeepCopy()
	expect.Conditions = []corev1.PodCondition{gate, ready}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Error(diff)
	}

	want.Phase = corev1.PodFailed
	got = merge(api, want, false)
	expect.Phase = corev1.PodFailed
	notReady := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}
	expect.Conditions = []corev1.PodCondition{gate, notReady, disrupted}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Error("a pod that has ended:", diff)
	}

	api.Phase = corev1.PodSucceeded
	if got = merge(api, want, false); got.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s after Succeeded", got.Phase)
	}
	want.Phase = corev1.PodRunning
	if got = merge(api, want, true); got.Phase != corev1.PodRunning {
		t.Errorf("phase %s of a pod that starts again", got.Phase)
	}
}

func TestSameIgnoresConditionTimesAndOtherWritersConditions(t *testing.T) {
	a := &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: earlier}, {Type: "other", Status: corev1.ConditionTrue},
	}}
	b := &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if !same(a, b) {
		t.Error("statuses differ")
	}
	for what, change := range map[string]func(*corev1.PodStatus){
		"message of a condition": func(s *corev1.PodStatus) { s.Conditions[0].Message = "x" },
		"further condition": func(s *corev1.PodStatus) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodScheduled})
		},
		"address": func(s *corev1.PodStatus) { s.PodIP = "10.0.0.1" },
	} {
		c := b.DeepCopy()
		if change(c); same(a, c) {
			t.Errorf("%s: no difference", what)
		}
	}
}
