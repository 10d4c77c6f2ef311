package devicetainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"svc.dev/svc/controllers/controller"
)

// evictionMetrics are those of kube-controller-manager 1.37.
type evictionMetrics struct {
	deletions prometheus.Counter
	duration  prometheus.Histogram
}

func newMetrics() *evictionMetrics {
	return &evictionMetrics{
		deletions: controller.Registered(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "device_taint_eviction_controller_pod_deletions_total",
			Help: "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.",
		})),
		duration: controller.Registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "device_taint_eviction_controller_pod_deletion_duration_seconds",
			Help:    "[ALPHA] Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		})),
	}
}

// observe counts a pod that was evicted so long after it was to be.
func (m *evictionMetrics) observe(late time.Duration) {
	m.deletions.Inc()
	m.duration.Observe(late.Seconds())
}
