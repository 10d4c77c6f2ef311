package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// syncMetrics are those of the agent's own work: how it follows the container runtime, and
// syncs pods, cgroups and volumes.
type syncMetrics struct {
	relistDuration, relistInterval        prometheus.Histogram
	podWorkers, cgroups, volumeOperations *prometheus.HistogramVec
}

func newSyncMetrics() syncMetrics {
	return syncMetrics{
		relistDuration: histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets),
		relistInterval: histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", prometheus.DefBuckets),
		podWorkers:     histograms("pod_worker_duration_seconds", "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync", prometheus.DefBuckets, "operation_type"),
		cgroups:        histograms("cgroup_manager_duration_seconds", "Duration in seconds for cgroup manager operations. Broken down by method.", prometheus.DefBuckets, "operation_type"),
		volumeOperations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: alpha + "Storage operation duration",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
	}
}

func (s syncMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.relistDuration, s.relistInterval, s.podWorkers, s.cgroups, s.volumeOperations}
}

// Relisted records a list of all pods of the container runtime: how long it took, and the time
// between its start and that of the one before, zero for the first.
func (s syncMetrics) Relisted(took, interval time.Duration) {
	s.relistDuration.Observe(took.Seconds())
	if interval > 0 {
		s.relistInterval.Observe(interval.Seconds())
	}
}

// PodSynced records the sync of a pod, by what caused it: "create", "update", "sync" or "kill".
func (s syncMetrics) PodSynced(kind string, took time.Duration) {
	s.podWorkers.WithLabelValues(kind).Observe(took.Seconds())
}

// CgroupOperation records an operation on a cgroup: "create", "update" or "destroy".
func (s syncMetrics) CgroupOperation(operation string, took time.Duration) {
	s.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// VolumeOperation records "volume_mount" or "volume_unmount" of a volume. migrated reports
// whether a CSI driver has the volume of another plugin.
func (s syncMetrics) VolumeOperation(plugin, operation string, migrated bool, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	s.volumeOperations.WithLabelValues(plugin, operation, status, strconv.FormatBool(migrated)).Observe(took.Seconds())
}
