package job

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/job/decide"
)

// The metrics are the process's: tests compare them before and after.
func TestJobsAndTheirPodsAreCountedOnce(t *testing.T) {
	m := newMetrics()
	job := &batchv1.Job{Spec: batchv1.JobSpec{CompletionMode: new(batchv1.IndexedCompletion)}}
	counters := map[string]struct {
		counter prometheus.Counter
		more    float64
	}{
		"succeeded pods": {m.podsFinished.WithLabelValues("Indexed", "succeeded"), 2},
		"failed pods":    {m.podsFinished.WithLabelValues("Indexed", "failed"), 1},
		"failed jobs":    {m.finished.WithLabelValues("Indexed", "failed", "BackoffLimitExceeded"), 1},
		"complete jobs":  {m.finished.WithLabelValues("Indexed", "succeeded", ""), 0},
		"failed syncs":   {m.syncs.WithLabelValues("Indexed", "error", "pods_created"), 1},
		"quiet syncs":    {m.syncs.WithLabelValues("Indexed", "success", "reconciling"), 1},
	}
	before := map[string]float64{}
	for name, c := range counters {
		before[name] = testutil.ToFloat64(c.counter)
	}
	running := batchv1.JobStatus{Succeeded: 2}
	failed := batchv1.JobStatus{Succeeded: 2, Failed: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"},
	}}
	m.written(job, &batchv1.JobStatus{}, &running)
	m.written(job, &running, &failed)
	m.written(job, &failed, &failed)
	m.synced(job, &decide.Plan{Create: make([]decide.Replica, 1)}, time.Second, errors.New("away"))
	m.synced(job, &decide.Plan{}, time.Second, nil)
	for name, c := range counters {
		if got := testutil.ToFloat64(c.counter) - before[name]; got != c.more {
			t.Errorf("%s: %v more, want %v", name, got, c.more)
		}
	}
}
