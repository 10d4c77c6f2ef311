package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func validReplicaSet(t *testing.T) *appsv1.ReplicaSet {
	rs := resourcetest.Read(t, replicaSets.Kind(), "testdata/replicasets/minimal/input.yaml").(*appsv1.ReplicaSet)
	replicaSets.Default(rs)
	return rs
}

func TestValidateReplicaSet(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(rs *appsv1.ReplicaSet)
		want   []string
	}{
		{"a defaulted replica set is valid", func(*appsv1.ReplicaSet) {}, nil},
		{"counts are not negative", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas, rs.Spec.MinReadySeconds = ptr.To[int32](-1), -2 }, []string{
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
			"spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
		}},
		{"a selector's expressions are valid", func(rs *appsv1.ReplicaSet) {
			rs.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
		}, []string{
			`spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`,
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			rs := validReplicaSet(t)
			test.change(rs)
			resourcetest.Errors(t, validateReplicaSet(rs), test.want...)
		})
	}
}

func TestReplicaSetSelectorIsImmutable(t *testing.T) {
	old := validReplicaSet(t)
	rs := old.DeepCopy()
	rs.Spec.Selector.MatchLabels["app"] = "db"
	resourcetest.Errors(t, replicaSets.ValidateUpdate(rs, old), `spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable`)
}

func TestReplicaSetIsSelectedByReplicas(t *testing.T) {
	rs := &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Replicas: 3}}
	if got := replicaSets.Fields["status.replicas"](rs); got != "3" {
		t.Errorf("status.replicas is %q, want 3", got)
	}
}

func TestValidateReplicaSetStatus(t *testing.T) {
	resourcetest.Errors(t, validateReplicaSetStatus(&appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{
		Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 0, AvailableReplicas: 1, ObservedGeneration: -1,
	}}, nil),
		"status.observedGeneration: Invalid value: -1: must be greater than or equal to 0",
		"status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas",
		"status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas")
}
