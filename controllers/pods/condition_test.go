package pods_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/controllers/pods"
)

func TestSetCondition(t *testing.T) {
	before, now := time.Unix(1000, 0), time.Unix(2000, 0)
	ready := func(status corev1.ConditionStatus, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: status, Message: message}
	}
	for _, test := range []struct {
		name    string
		had     *corev1.PodCondition
		set     corev1.PodCondition
		changed bool
		since   time.Time
	}{
		{"a new condition changes the status", nil, ready("True", ""), true, now},
		{"another status is a transition", new(ready("True", "")), ready("False", ""), true, now},
		{"another message is no transition", new(ready("True", "")), ready("True", "new"), true, before},
		{"the same again changes nothing", new(ready("True", "")), ready("True", ""), false, before},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			if test.had != nil {
				test.had.LastTransitionTime = metav1.NewTime(before)
				pod.Status.Conditions = []corev1.PodCondition{*test.had}
			}
			if changed := pods.SetCondition(pod, test.set, now); changed != test.changed {
				t.Errorf("changed: %v", changed)
			}
			got := pod.Status.Conditions
			if len(got) != 1 || got[0].Status != test.set.Status || got[0].Message != test.set.Message || got[0].ObservedGeneration != 7 || !got[0].LastTransitionTime.Time.Equal(test.since) {
				t.Errorf("conditions: %+v", got)
			}
		})
	}
}
