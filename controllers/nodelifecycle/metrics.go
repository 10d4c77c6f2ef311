package nodelifecycle

import (
	"github.com/prometheus/client_golang/prometheus"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

// nodeMetrics are those of kube-controller-manager 1.28. A zone is
// "region:\x00:zone", by the labels of its nodes, or empty.
type nodeMetrics struct {
	evictions               *prometheus.CounterVec
	size, health, unhealthy *prometheus.GaugeVec
}

func newMetrics() *nodeMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return controller.Registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "node_collector_" + name, Help: "[ALPHA] " + help}, []string{"zone"}))
	}
	return &nodeMetrics{
		evictions: controller.Registered(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_collector_evictions_total",
			Help: "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
		}, []string{"zone"})),
		size:      gauge("zone_size", "Gauge measuring number of registered Nodes per zones."),
		health:    gauge("zone_health", "Gauge measuring percentage of healthy nodes per zone."),
		unhealthy: gauge("unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones."),
	}
}

// measure records the zones as they are. A zone without nodes has no health.
func (m *nodeMetrics) measure(zones []fleet.Zone) {
	for _, z := range zones {
		m.size.WithLabelValues(z.Name).Set(float64(z.Nodes))
		m.unhealthy.WithLabelValues(z.Name).Set(float64(z.NotReady))
		if z.Nodes > 0 {
			m.health.WithLabelValues(z.Name).Set(100 * float64(z.Nodes-z.NotReady) / float64(z.Nodes))
		} else {
			m.health.DeleteLabelValues(z.Name)
		}
	}
}
