package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/pod"
)

// metrics are kubelet's: names, help texts and labels.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec

	httpFallbacks    prometheus.Counter
	sleepsTerminated prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total",
			Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "prober_probe_duration_seconds",
			Help:    "[ALPHA] Duration in seconds for a probe response.",
			Buckets: prometheus.DefBuckets,
		}, []string{"probe_type", "container", "pod", "namespace"}),
		httpFallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_lifecycle_handler_http_fallbacks_total",
			Help: "[ALPHA] The number of times lifecycle handlers successfully fell back to http from https.",
		}),
		sleepsTerminated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_sleep_action_terminated_early_total",
			Help: "[ALPHA] The number of times lifecycle sleep handler got terminated before it finishes",
		}),
	}
}

// ProbeMetrics returns the metrics for /metrics/probes.
func (m *Manager) ProbeMetrics() []prometheus.Collector {
	return []prometheus.Collector{m.metrics.total, m.metrics.duration}
}

// HookMetrics returns the metrics for /metrics.
func (m *Manager) HookMetrics() []prometheus.Collector {
	return []prometheus.Collector{m.metrics.httpFallbacks, m.metrics.sleepsTerminated}
}

// series are the metrics of one probe. They appear with the first observation.
type series struct {
	success, failure func() prometheus.Counter
	duration         func() prometheus.Observer
}

func (m *metrics) series(p *corev1.Pod, container string, kind pod.ProbeKind) series {
	total := func(result string) func() prometheus.Counter {
		return func() prometheus.Counter {
			return m.total.WithLabelValues(string(kind), result, container, p.Name, p.Namespace, string(p.UID))
		}
	}
	return series{
		success: total("successful"),
		failure: total("failed"),
		duration: func() prometheus.Observer {
			return m.duration.WithLabelValues(string(kind), container, p.Name, p.Namespace)
		},
	}
}

// observe records a run. Only the duration of successful runs is recorded.
func (s series) observe(success bool, took time.Duration) {
	if !success {
		s.failure().Inc()
		return
	}
	s.success().Inc()
	s.duration().Observe(took.Seconds())
}

func (m *metrics) forget(p *corev1.Pod) {
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	m.duration.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
}
