package job

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/job/decide"
)

// jobMetrics are those of kube-controller-manager 1.28.
type jobMetrics struct {
	syncs        *prometheus.CounterVec
	syncDuration *prometheus.HistogramVec
	finished     *prometheus.CounterVec
	podsFinished *prometheus.CounterVec
}

func newMetrics() *jobMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return controller.Registered(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "job_controller_" + name, Help: "[STABLE] " + help}, labels))
	}
	return &jobMetrics{
		syncs: counter("job_syncs_total", "The number of job syncs", "completion_mode", "result", "action"),
		syncDuration: controller.Registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "job_controller_job_sync_duration_seconds", Help: "[STABLE] The time it took to sync a job",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"})),
		finished:     counter("jobs_finished_total", "The number of finished jobs", "completion_mode", "result", "reason"),
		podsFinished: counter("job_pods_finished_total", "The number of finished Pods that are fully tracked", "completion_mode", "result"),
	}
}

func completionMode(job *batchv1.Job) string {
	return string(ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion))
}

// synced records a sync that executed a plan.
func (m *jobMetrics) synced(job *batchv1.Job, plan *decide.Plan, took time.Duration, err error) {
	result, action := "success", "reconciling"
	switch {
	case len(plan.Delete) > 0:
		action = "pods_deleted"
	case len(plan.Create) > 0:
		action = "pods_created"
	case len(plan.Release) > 0:
		action = "tracking"
	}
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(completionMode(job), result, action).Inc()
	m.syncDuration.WithLabelValues(completionMode(job), result, action).Observe(took.Seconds())
}

// written records a status that replaced another: the pods that it counts, and that
// the job has finished.
func (m *jobMetrics) written(job *batchv1.Job, before, after *batchv1.JobStatus) {
	mode := completionMode(job)
	m.podsFinished.WithLabelValues(mode, "succeeded").Add(float64(max(after.Succeeded-before.Succeeded, 0)))
	m.podsFinished.WithLabelValues(mode, "failed").Add(float64(max(after.Failed-before.Failed, 0)))
	if finished(before) != nil {
		return
	}
	if c := finished(after); c != nil && c.Type == batchv1.JobComplete {
		m.finished.WithLabelValues(mode, "succeeded", "").Inc()
	} else if c != nil {
		m.finished.WithLabelValues(mode, "failed", c.Reason).Inc()
	}
}

// finished returns the condition that the job has finished, or nil.
func finished(s *batchv1.JobStatus) *batchv1.JobCondition {
	return cmp.Or(decide.TrueCondition(s, batchv1.JobComplete), decide.TrueCondition(s, batchv1.JobFailed))
}
