package nodelifecycle

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	before = metav1.NewTime(time.Unix(1000, 0))
	now    = time.Unix(2000, 0)
)

func TestSetUnknown(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: before}}
	for _, c := range []struct {
		name   corev1.NodeConditionType
		status corev1.ConditionStatus
	}{
		{corev1.NodeReady, corev1.ConditionTrue}, {corev1.NodeMemoryPressure, corev1.ConditionUnknown}, {corev1.NodeNetworkUnavailable, corev1.ConditionFalse},
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c.name, Status: c.status, Reason: "Old", LastHeartbeatTime: before, LastTransitionTime: before})
	}
	setUnknown(n, now)
	var got []string
	for _, c := range n.Status.Conditions {
		got = append(got, fmt.Sprintf("%s %s %s %d %d", c.Type, c.Status, c.Reason, c.LastHeartbeatTime.Unix(), c.LastTransitionTime.Unix()))
	}
	want := []string{
		"Ready Unknown NodeStatusUnknown 1000 2000",
		"MemoryPressure Unknown Old 1000 1000",
		"NetworkUnavailable False Old 1000 1000", // nodes do not post it
		"DiskPressure Unknown NodeStatusNeverUpdated 1000 2000",
		"PIDPressure Unknown NodeStatusNeverUpdated 1000 2000",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSetTaints(t *testing.T) {
	const no, exec = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	type conditions map[corev1.NodeConditionType]corev1.ConditionStatus
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect, TimeAdded: &before}
	}
	for _, test := range []struct {
		name          string
		conditions    conditions
		unschedulable bool
		evicting      string
		has           []corev1.Taint
		want          string
	}{
		{"a healthy node has none", conditions{"Ready": "True"}, false, "", nil, "[]"},
		{"a node without conditions has none", nil, false, "", nil, "[]"},
		{"a node that is not ready gets no new pods", conditions{"Ready": "False"}, false, "", nil, "[node.kubernetes.io/not-ready:NoSchedule@2000]"},
		{"nor does an unreachable node", conditions{"Ready": "Unknown"}, false, "", nil, "[node.kubernetes.io/unreachable:NoSchedule@2000]"},
		{"nor does a node under pressure", conditions{"MemoryPressure": "True"}, false, "", nil, "[node.kubernetes.io/memory-pressure:NoSchedule@2000]"},
		{"unknown pressure is no taint", conditions{"DiskPressure": "Unknown", "PIDPressure": "Unknown"}, false, "", nil, "[]"},
		{"a node without network gets no new pods", conditions{"NetworkUnavailable": "True"}, false, "", nil, "[node.kubernetes.io/network-unavailable:NoSchedule@2000]"},
		{"a cordoned node gets no new pods", nil, true, "", nil, "[node.kubernetes.io/unschedulable:NoSchedule@2000]"},
		{"an existing taint keeps its time", conditions{"Ready": "False"}, false, "", []corev1.Taint{taint("node.kubernetes.io/not-ready", no)}, "[node.kubernetes.io/not-ready:NoSchedule@1000]"},
		{"a taint without a cause is removed", conditions{"Ready": "True"}, false, "", []corev1.Taint{taint("node.kubernetes.io/unschedulable", no), taint("node.kubernetes.io/unreachable", exec)}, "[]"},
		{"an eviction is a further taint", conditions{"Ready": "Unknown"}, false, "node.kubernetes.io/unreachable", []corev1.Taint{taint("node.kubernetes.io/unreachable", no)}, "[node.kubernetes.io/unreachable:NoSchedule@1000 node.kubernetes.io/unreachable:NoExecute@2000]"},
		{"the taint of one eviction replaces that of another", conditions{"Ready": "True"}, false, "node.kubernetes.io/not-ready", []corev1.Taint{taint("node.kubernetes.io/unreachable", exec)}, "[node.kubernetes.io/not-ready:NoExecute@2000]"},
		{"the taints of other clients stay", conditions{"Ready": "True"}, false, "", []corev1.Taint{taint("mine", no), taint("node.kubernetes.io/out-of-service", exec), taint("node.kubernetes.io/memory-pressure", exec)},
			"[mine:NoSchedule@1000 node.kubernetes.io/out-of-service:NoExecute@1000 node.kubernetes.io/memory-pressure:NoExecute@1000]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: test.unschedulable, Taints: test.has}}
			for name, status := range test.conditions {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: name, Status: status})
			}
			print := func(taints []corev1.Taint) string {
				var all []string
				for _, t := range taints {
					all = append(all, fmt.Sprintf("%s@%d", t.ToString(), t.TimeAdded.Unix()))
				}
				return fmt.Sprint(all)
			}
			changed := setTaints(n, test.evicting, now)
			if got := print(n.Spec.Taints); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if changed != (print(test.has) != test.want) {
				t.Errorf("changed: %v", changed)
			}
			if setTaints(n, test.evicting, now) {
				t.Error("the second call reports a change, too")
			}
		})
	}
}

func TestSetLabels(t *testing.T) {
	for _, test := range []struct {
		name      string
		has, want map[string]string
	}{
		{"no labels", nil, nil},
		{"the beta name is added", map[string]string{"kubernetes.io/os": "linux"}, map[string]string{"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}},
		{"the stable name decides", map[string]string{"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}, map[string]string{"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "arm64"}},
		{"the beta name alone stays as it is", map[string]string{"beta.kubernetes.io/os": "linux"}, map[string]string{"beta.kubernetes.io/os": "linux"}},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(test.has)}}
		if changed := setLabels(n); changed == maps.Equal(test.has, test.want) || !maps.Equal(n.Labels, test.want) {
			t.Errorf("%s: got %v (%v), want %v", test.name, n.Labels, changed, test.want)
		}
	}
}
