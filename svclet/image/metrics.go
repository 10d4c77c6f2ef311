package image

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics are kubelet's: names, help texts and labels.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total",
			Help: "[ALPHA] Number of ensure-image requests processed by the kubelet.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_image_pull_duration_seconds",
			Help:    "[ALPHA] Duration in seconds to pull an image.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
}

// Metrics returns the metrics for /metrics.
func (m *Manager) Metrics() []prometheus.Collector {
	return []prometheus.Collector{m.metrics.requests, m.metrics.duration}
}

// notChecked is the label value for a check that was not made.
const notChecked = "unknown"

func answerOf(yes bool) string { return strconv.FormatBool(yes) }

func (m *metrics) ensured(policy corev1.PullPolicy, present, pulled string) {
	m.requests.WithLabelValues(strings.ToLower(string(policy)), present, pulled).Inc()
}

func (m *metrics) pulled(size uint64, took time.Duration) {
	m.duration.WithLabelValues(sizeOf(size)).Observe(took.Seconds())
}

// sizeOf returns the label for an image size in bytes.
func sizeOf(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	label := "N/A"
	for _, class := range []struct {
		above uint64
		label string
	}{
		{0, "0-10MB"}, {10 * mb, "10MB-100MB"}, {100 * mb, "100MB-500MB"}, {500 * mb, "500MB-1GB"},
		{1 * gb, "1GB-5GB"}, {5 * gb, "5GB-10GB"}, {10 * gb, "10GB-20GB"}, {20 * gb, "20GB-30GB"},
		{30 * gb, "30GB-40GB"}, {40 * gb, "40GB-60GB"}, {60 * gb, "60GB-100GB"}, {100 * gb, "GT100GB"},
	} {
		if size > class.above {
			label = class.label
		}
	}
	return label
}
