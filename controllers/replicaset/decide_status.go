package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"svc.dev/svc/controllers/pods"
)

// The reasons of the condition ReplicaFailure.
const (
	failedCreate = "FailedCreate"
	failedDelete = "FailedDelete"
)

// nextStatus returns the status of a replica set with these active pods. failure
// is the error of creating or deleting pods, or nil.
func nextStatus(rs *appsv1.ReplicaSet, active []*corev1.Pod, failure error, now time.Time) appsv1.ReplicaSetStatus {
	status := appsv1.ReplicaSetStatus{
		Replicas:           int32(len(active)),
		ObservedGeneration: rs.Generation,
		Conditions:         slices.Clone(rs.Status.Conditions),
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	for _, pod := range active {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if pods.IsReady(pod) {
			status.ReadyReplicas++
		}
		if available, _ := pods.IsAvailable(pod, rs.Spec.MinReadySeconds, now); available {
			status.AvailableReplicas++
		}
	}
	failed := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	switch {
	case failure == nil:
		status.Conditions = slices.DeleteFunc(status.Conditions, failed)
	case !slices.ContainsFunc(status.Conditions, failed):
		reason := failedCreate
		if len(active) > int(*rs.Spec.Replicas) {
			reason = failedDelete
		}
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Reason: reason, Message: failure.Error(),
		})
	}
	return status
}

// nextAvailable returns the time until another of the pods becomes available by
// minReadySeconds; zero if none does.
func nextAvailable(active []*corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	var next time.Duration
	for _, pod := range active {
		if _, in := pods.IsAvailable(pod, minReadySeconds, now); in > 0 && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}
