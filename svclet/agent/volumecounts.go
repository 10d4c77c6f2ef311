package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"svc.dev/svc/svclet/volume"
)

// totalVolumes is kubelet's metric of volumes.
var totalVolumes = prometheus.NewDesc("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil)

// volumeCounts collects the metric.
type volumeCounts struct{ volumes *volume.Manager }

// Describe implements prometheus.Collector.
func (volumeCounts) Describe(ch chan<- *prometheus.Desc) { ch <- totalVolumes }

// Collect implements prometheus.Collector.
func (v volumeCounts) Collect(ch chan<- prometheus.Metric) {
	wanted, mounted := v.volumes.Count()
	for state, counts := range map[string]map[string]int{"desired_state_of_world": wanted, "actual_state_of_world": mounted} {
		for plugin, count := range counts {
			ch <- prometheus.MustNewConstMetric(totalVolumes, prometheus.GaugeValue, float64(count), plugin, state)
		}
	}
}
