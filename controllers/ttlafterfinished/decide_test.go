package ttlafterfinished

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestExpiry(t *testing.T) {
	finished := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	condition := func(name batchv1.JobConditionType, status corev1.ConditionStatus) []batchv1.JobCondition {
		return []batchv1.JobCondition{
			{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue},
			{Type: name, Status: status, LastTransitionTime: metav1.NewTime(finished)},
		}
	}
	for _, tt := range []struct {
		rule       string
		ttl        *int32
		conditions []batchv1.JobCondition
		deleted    *metav1.Time
		want       time.Time
		ok         bool
	}{
		{"after its time to live", ptr.To[int32](60), condition(batchv1.JobComplete, corev1.ConditionTrue), nil, finished.Add(time.Minute), true},
		{"also for a failed job", ptr.To[int32](60), condition(batchv1.JobFailed, corev1.ConditionTrue), nil, finished.Add(time.Minute), true},
		{"at once", ptr.To[int32](0), condition(batchv1.JobComplete, corev1.ConditionTrue), nil, finished, true},
		{"never without a time to live", nil, condition(batchv1.JobComplete, corev1.ConditionTrue), nil, time.Time{}, false},
		{"not before it has finished", ptr.To[int32](0), condition(batchv1.JobComplete, corev1.ConditionFalse), nil, time.Time{}, false},
		{"not while its pods are being deleted", ptr.To[int32](0), condition(batchv1.JobFailureTarget, corev1.ConditionTrue), nil, time.Time{}, false},
		{"not while it is being deleted", ptr.To[int32](0), condition(batchv1.JobComplete, corev1.ConditionTrue), ptr.To(metav1.NewTime(finished)), time.Time{}, false},
	} {
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tt.deleted},
			Spec:       batchv1.JobSpec{TTLSecondsAfterFinished: tt.ttl},
			Status:     batchv1.JobStatus{Conditions: tt.conditions},
		}
		if at, ok := expiry(job); !at.Equal(tt.want) || ok != tt.ok {
			t.Errorf("%s: got %s, %v", tt.rule, at, ok)
		}
	}
}
