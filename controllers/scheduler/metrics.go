package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/queue"
)

// schedulerMetrics are those of kube-scheduler 1.28, with its names, labels, buckets
// and stability, for what this scheduler has. It has no plugins.
type schedulerMetrics struct {
	attempts    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	algorithm   prometheus.Histogram
	pending     *prometheus.GaugeVec
	podDuration *prometheus.HistogramVec
	podSLI      *prometheus.HistogramVec
	podAttempts prometheus.Histogram
	incoming    *prometheus.CounterVec
	goroutines  *prometheus.GaugeVec
	cacheSize   *prometheus.GaugeVec

	preemptions prometheus.Counter
	victims     prometheus.Histogram

	// groups is nil if pods are scheduled without regard to their groups.
	groups *groupMetrics
}

// newMetrics registers the metrics.
func newMetrics() *schedulerMetrics {
	return &schedulerMetrics{
		attempts: controller.Registered(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total",
			Help: "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
		}, []string{"result", "profile"})),
		duration: controller.Registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
			Help: "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
		}, []string{"result", "profile"})),
		algorithm: controller.Registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
			Help: "[ALPHA] Scheduling algorithm latency in seconds",
		})),
		pending: controller.Registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_pending_pods",
			Help: "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.",
		}, []string{"queue"})),
		podDuration: controller.Registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
			Help: "[STABLE] (Deprecated since 1.29.0) E2e latency for a pod being scheduled which may include multiple scheduling attempts.",
		}, []string{"attempts"})),
		podSLI: controller.Registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
			Help: "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
		}, []string{"attempts"})),
		podAttempts: controller.Registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Buckets: prometheus.ExponentialBuckets(1, 2, 5),
			Help: "[STABLE] Number of attempts to successfully schedule a pod.",
		})),
		incoming: controller.Registered(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_queue_incoming_pods_total",
			Help: "[STABLE] Number of pods added to scheduling queues by event and queue type.",
		}, []string{"queue", "event"})),
		goroutines: controller.Registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_goroutines",
			Help: "[ALPHA] Number of running goroutines split by the work they do such as binding.",
		}, []string{"operation"})),
		cacheSize: controller.Registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_scheduler_cache_size",
			Help: "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
		}, []string{"type"})),
		preemptions: controller.Registered(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total",
			Help: "[STABLE] Total preemption attempts in the cluster till now",
		})),
		victims: controller.Registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Buckets: prometheus.ExponentialBuckets(1, 2, 7),
			Help: "[STABLE] Number of selected preemption victims",
		})),
	}
}

// groupMetrics are those of kube-scheduler 1.37 about PodGroups.
type groupMetrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newGroupMetrics registers the metrics.
func newGroupMetrics() *groupMetrics {
	return &groupMetrics{
		attempts: controller.Registered(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_podgroup_schedule_attempts_total",
			Help: "[ALPHA] Number of attempts to schedule pod group, by the result. 'unschedulable' means a pod group could not be scheduled, while 'error' means an internal scheduler problem.",
		}, []string{"result", "profile"})),
		duration: controller.Registered(prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_podgroup_scheduling_attempt_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
			Help: "[ALPHA] Pod group scheduling attempt latency in seconds",
		}, []string{"result", "profile"})),
	}
}

// attempted records an attempt for a group.
func (m *groupMetrics) attempted(r *groupResult, took time.Duration) {
	outcome := unschedulable
	switch r.reason {
	case reasonScheduled:
		outcome = scheduled
	case schedulingv1beta1.PodGroupReasonSchedulerError:
		outcome = failure
	}
	m.attempts.WithLabelValues(string(outcome), r.profile).Inc()
	m.duration.WithLabelValues(string(outcome), r.profile).Observe(took.Seconds())
}

// result is the outcome of an attempt.
type result string

const (
	scheduled     result = "scheduled"
	unschedulable result = "unschedulable"
	failure       result = "error"
)

// attempted records an attempt for a pod. The profile is the pod's scheduler.
func (m *schedulerMetrics) attempted(pod *corev1.Pod, r result, took time.Duration) {
	m.attempts.WithLabelValues(string(r), pod.Spec.SchedulerName).Inc()
	m.duration.WithLabelValues(string(r), pod.Spec.SchedulerName).Observe(took.Seconds())
}

// mostAttempts is the number of attempts from which on pods share series.
const mostAttempts = 15

// bound records a pod that got its node after a number of attempts, some time after
// the first.
func (m *schedulerMetrics) bound(attempts int, took time.Duration) {
	label := strconv.Itoa(attempts)
	if attempts >= mostAttempts {
		label = strconv.Itoa(mostAttempts) + "+"
	}
	m.podDuration.WithLabelValues(label).Observe(took.Seconds())
	m.podSLI.WithLabelValues(label).Observe(took.Seconds())
	m.podAttempts.Observe(float64(attempts))
}

// preempted records the number of victims of a preemption.
func (m *schedulerMetrics) preempted(victims int) { m.victims.Observe(float64(victims)) }

// measure records the numbers of pods and nodes, as they are.
func (m *schedulerMetrics) measure(c *core, binding int) {
	for _, name := range []queue.Name{queue.Active, queue.Backoff, queue.Unschedulable, queue.Gated} {
		m.pending.WithLabelValues(string(name)).Set(float64(c.queue.Pending(name)))
	}
	nodes, pods := c.snapshot.Size()
	m.cacheSize.WithLabelValues("nodes").Set(float64(nodes))
	m.cacheSize.WithLabelValues("pods").Set(float64(pods))
	m.cacheSize.WithLabelValues("assumed_pods").Set(float64(len(c.assumed)))
	m.goroutines.WithLabelValues("binding").Set(float64(binding))
}

// entered counts a pod that enters a queue.
func (m *schedulerMetrics) entered(name queue.Name, cause queue.Cause) {
	event := cause.Name
	for _, e := range eventNames {
		if event == "" && decision.Event(cause.Events)&e.event != 0 {
			event = e.name
		}
	}
	m.incoming.WithLabelValues(string(name), event).Inc()
}

// eventNames are the names that kube-scheduler's metrics give the events.
var eventNames = []struct {
	event decision.Event
	name  string
}{
	{decision.NodeAdded, "NodeAdd"},
	{decision.NodeRemoved, "NodeDelete"},
	{decision.NodeLabels, "NodeLabelChange"},
	{decision.NodeTaints, "NodeTaintChange"},
	{decision.NodeAllocatable, "NodeAllocatableChange"},
	{decision.NodeFeatures, "NodeDeclaredFeatureChange"},
	{decision.PodBound, "AssignedPodAdd"},
	{decision.PodGone, "AssignedPodDelete"},
	{decision.PodLabels | decision.PodShrunk, "AssignedPodUpdate"},
	{decision.ClaimChanged | decision.OwnClaimChanged, "PvcUpdate"},
	{decision.VolumeChanged, "PvUpdate"},
	{decision.ClassChanged, "StorageClassUpdate"},
	{decision.CSINodeChanged, "CSINodeUpdate"},
	{decision.OwnClassChanged, "DeviceClassUpdate"},
	{decision.AttachmentGone, "VolumeAttachmentDelete"},
	{decision.NamespaceChanged, "NamespaceUpdate"},
	{decision.OwnGroupChanged, queue.PodGroupUpdate.Name},
}
