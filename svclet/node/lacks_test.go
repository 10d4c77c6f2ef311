package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatANodeLacksIsAConditionUntilItIsThere(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	var s corev1.NodeStatus
	setLacks(&s, nil, at(1))
	if len(s.Conditions) != 0 {
		t.Errorf("conditions of a node that lacks nothing: %v", s.Conditions)
	}
	setLacks(&s, []Lack{{ServiceDNSUnavailable, "CannotListen", "no port"}}, at(2))
	c := condition(s.Conditions, ServiceDNSUnavailable)
	if len(s.Conditions) != 1 || c == nil || c.Status != corev1.ConditionTrue || c.Reason != "CannotListen" || c.Message != "no port" {
		t.Errorf("a node without names: %v", s.Conditions)
	}
	setLacks(&s, nil, at(3))
	if c := condition(s.Conditions, ServiceDNSUnavailable); len(s.Conditions) != 1 || c.Status != corev1.ConditionFalse || !c.LastTransitionTime.Time.Equal(at(3).Time) {
		t.Errorf("after that: %v", s.Conditions)
	}
}
