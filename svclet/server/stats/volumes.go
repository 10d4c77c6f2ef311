package stats

import (
	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// claimLabels are the labels of metrics of volumes.
var claimLabels = []string{"namespace", "persistentvolumeclaim"}

// The metrics of the volumes of claims, in /metrics. Names, help texts and labels are
// kubelet's.
var (
	volumeCapacity   = describe("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", claimLabels)
	volumeAvailable  = describe("kubelet_volume_stats_available_bytes", "[ALPHA] Number of available bytes in the volume", claimLabels)
	volumeUsed       = describe("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", claimLabels)
	volumeInodes     = describe("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", claimLabels)
	volumeInodesFree = describe("kubelet_volume_stats_inodes_free", "[ALPHA] Number of free inodes in the volume", claimLabels)
	volumeInodesUsed = describe("kubelet_volume_stats_inodes_used", "[ALPHA] Number of used inodes in the volume", claimLabels)
)

// VolumeMetrics returns the metrics of the volumes of claims, as of the last summary: a volume
// that does not answer keeps no other metric from being collected.
func (p *Provider) VolumeMetrics() prometheus.Collector { return volumes{p} }

type volumes struct{ p *Provider }

// Describe implements prometheus.Collector.
func (volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{volumeCapacity, volumeAvailable, volumeUsed, volumeInodes, volumeInodesFree, volumeInodesUsed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A volume that several pods use is counted once.
func (v volumes) Collect(ch chan<- prometheus.Metric) {
	s := v.p.latest.Load()
	if s == nil {
		return // nothing has been measured
	}
	seen := map[statsapi.PVCReference]bool{}
	for i := range s.Pods {
		for _, volume := range s.Pods[i].VolumeStats {
			if volume.PVCRef == nil || seen[*volume.PVCRef] {
				continue
			}
			seen[*volume.PVCRef] = true
			collectVolume(ch, &volume)
		}
	}
}

func collectVolume(ch chan<- prometheus.Metric, v *statsapi.VolumeStats) {
	for _, m := range []struct {
		desc  *prometheus.Desc
		value *uint64
	}{
		{volumeCapacity, v.CapacityBytes}, {volumeAvailable, v.AvailableBytes}, {volumeUsed, v.UsedBytes},
		{volumeInodes, v.Inodes}, {volumeInodesFree, v.InodesFree}, {volumeInodesUsed, v.InodesUsed},
	} {
		if m.value != nil {
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(*m.value), v.PVCRef.Namespace, v.PVCRef.Name)
		}
	}
}
