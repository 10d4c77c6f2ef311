package certificates

import (
	"crypto/tls"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// metrics are those of one certificate, with kubelet's names.
type metrics struct {
	age      prometheus.Histogram
	failures prometheus.Counter
	left     prometheus.GaugeFunc
}

const alpha = "[ALPHA] "

// newMetrics returns the metrics of the certificate of a kind ("client", "server"),
// which current returns.
func newMetrics(kind, failures string, current func() *tls.Certificate, c clock.PassiveClock) metrics {
	const day = 24 * 60 * 60
	return metrics{
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "kubelet", Name: "certificate_manager_" + kind + "_rotation_seconds",
			Help:    alpha + "Histogram of the number of seconds the previous certificate lived before being rotated.",
			Buckets: []float64{60, 3600, 4 * 3600, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1440 * day},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: "kubelet", Name: failures, Help: alpha + "Counter of certificate renewal errors.",
		}),
		left: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: "kubelet", Name: "certificate_manager_" + kind + "_ttl_seconds",
			Help: alpha + "Gauge of the shortest TTL (time-to-live) of the certificate. The value is in seconds until certificate expiry (negative if already expired). If the certificate is invalid or unused, the value will be +INF.",
		}, func() float64 {
			if pair := current(); pair != nil && pair.Leaf != nil {
				return math.Trunc(pair.Leaf.NotAfter.Sub(c.Now()).Seconds())
			}
			return math.Inf(1)
		}),
	}
}

// collectors returns the metrics of a certificate for a registry.
func (m metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.age, m.failures, m.left}
}
