package replicaset

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

func labeled(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "tier": "front"} }

func TestStatusCountsPods(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	rs.Spec.Replicas, rs.Spec.MinReadySeconds = ptr.To[int32](4), 10
	rs.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	active := []*corev1.Pod{pod("a", labeled), pod("b", labeled, readyFor(9*time.Second)), pod("c", unready), pod("d", labeled, readyFor(4*time.Second))}
	status := nextStatus(rs, active, nil, noon)
	got := fmt.Sprint(status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, status.ObservedGeneration, status.Conditions)
	if want := "4 3 3 1 7 []"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if next := nextAvailable(active, 10, noon); next != time.Second {
		t.Errorf("the next pod is available in %s", next)
	}
	if next := nextAvailable(active, 0, noon); next != 0 {
		t.Errorf("got %s without minReadySeconds", next)
	}
}

func TestReplicaFailureStaysUntilScalingSucceeds(t *testing.T) {
	rs := &appsv1.ReplicaSet{}
	rs.Spec.Replicas = ptr.To[int32](1)
	step := func(failure error, at time.Time) string {
		rs.Status = nextStatus(rs, nil, failure, at)
		if len(rs.Status.Conditions) == 0 {
			return "none"
		}
		c := rs.Status.Conditions[0]
		return fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, " ", c.Message, " ", c.LastTransitionTime.Sub(noon))
	}
	for _, tt := range []struct {
		rule    string
		failure error
		after   time.Duration
		want    string
	}{
		{"none without a failure", nil, 0, "none"},
		{"a failure adds it", errors.New("quota"), time.Second, "ReplicaFailure True FailedCreate quota 1s"},
		{"a second failure does not change it", errors.New("other"), time.Minute, "ReplicaFailure True FailedCreate quota 1s"},
		{"success removes it", nil, time.Hour, "none"},
	} {
		if got := step(tt.failure, noon.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %s", tt.rule, got)
		}
	}
	status := nextStatus(rs, []*corev1.Pod{pod("a"), pod("b")}, errors.New("no"), noon)
	if got := status.Conditions[0].Reason; got != failedDelete {
		t.Errorf("too many pods: reason %s", got)
	}
}

func TestReplicationControllerConvertsToReplicaSetAndBack(t *testing.T) {
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	rc.Spec.Selector = map[string]string{"app": "web"}
	rc.Spec.Replicas = ptr.To[int32](2)
	rc.Status = corev1.ReplicationControllerStatus{Replicas: 4, FullyLabeledReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1, ObservedGeneration: 5,
		Conditions: []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure, Reason: "FailedCreate"}}}
	k := replicationControllers()
	rs := k.view(rc)
	if s, err := selector(rs); err != nil || s.String() != "app=web" {
		t.Errorf("selector %v, %v", s, err)
	}
	before := fmt.Sprint(rc.Status)
	k.setStatus(rc, rs.Status)
	if got := fmt.Sprint(rc.Status); got != before {
		t.Errorf("the status becomes %s, was %s", got, before)
	}
	if s, err := selector(k.view(&corev1.ReplicationController{})); err != nil || s.Matches(labels.Set{"app": "web"}) {
		t.Errorf("no selector selects pods: %v, %v", s, err)
	}
}
