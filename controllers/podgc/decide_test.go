package podgc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGarbage(t *testing.T) {
	node := func(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{
			Spec:   corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	out := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	for _, test := range []struct {
		name     string
		nodeName string
		deleting bool
		node     *corev1.Node
		want     bool
	}{
		{"an unscheduled pod stays", "", false, nil, false},
		{"an unscheduled pod that is terminating is deleted", "", true, nil, true},
		{"a terminating pod on a ready node is left to the node agent", "n", true, node("True"), false},
		{"a terminating pod on an unreachable node stays", "n", true, node("Unknown"), false},
		{"a terminating pod on a node out of service is deleted", "n", true, node("Unknown", out), true},
		{"also on a node that is not ready", "n", true, node("False", out), true},
		{"a ready node is not out of service, whatever its taints", "n", true, node("True", out), false},
		{"a pod that is not terminating stays on a node out of service", "n", false, node("Unknown", out), false},
		{"a pod whose node is missing waits for the quarantine", "n", true, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: test.nodeName}}
			if test.deleting {
				pod.DeletionTimestamp = new(metav1.Now())
			}
			if got := garbage(pod, test.node); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestExcess(t *testing.T) {
	pod := func(name string, created int64, reason string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0))},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason},
		}
	}
	all := []*corev1.Pod{pod("young", 9, ""), pod("b", 1, ""), pod("a", 1, ""), pod("evicted", 10, "Evicted"), pod("old", 0, "")}
	for threshold, want := range map[int]string{
		5: "[]", 4: "[evicted]", 3: "[evicted old]", 2: "[evicted old a]", 1: "[evicted old a b]",
	} {
		var names []string
		for _, pod := range excess(slices.Clone(all), threshold) {
			names = append(names, pod.Name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("with a threshold of %d: %s, want %s", threshold, got, want)
		}
	}
}

func TestTerminatedGrowth(t *testing.T) {
	in := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	for _, test := range []struct {
		name          string
		before, after *corev1.Pod
		want          int
	}{
		{"a new pod", nil, in("Pending"), 0},
		{"a terminated pod of the initial list", nil, in("Succeeded"), 1},
		{"a pod that terminates", in("Running"), in("Failed"), 1},
		{"a terminated pod that changes", in("Failed"), in("Failed"), 0},
		{"a terminated pod that is deleted", in("Succeeded"), nil, -1},
		{"a running pod that is deleted", in("Running"), nil, 0},
	} {
		if got := terminatedGrowth(test.before, test.after); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}
