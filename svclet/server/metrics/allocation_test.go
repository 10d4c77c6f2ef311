package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server/metrics"
)

func TestKubeletsMetricsOfAllocationsExist(t *testing.T) {
	m := metrics.New("node-1", testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)))
	m.CPUsPinned(nil)
	m.CPUsPinned(errors.New("none left"))
	m.SharedCPUs(3)
	m.TopologyAdmission(100*time.Microsecond, true)
	m.TopologyAdmission(1500*time.Microsecond, false)
	m.DevicePluginRegistered("example.com/gpu")
	m.DevicesAllocated("example.com/gpu", 30*time.Millisecond)
	want := `
# HELP kubelet_cpu_manager_pinning_errors_total [ALPHA] The number of cpu core allocations which required pinning failed.
# TYPE kubelet_cpu_manager_pinning_errors_total counter
kubelet_cpu_manager_pinning_errors_total 1
# HELP kubelet_cpu_manager_pinning_requests_total [ALPHA] The number of cpu core allocations which required pinning.
# TYPE kubelet_cpu_manager_pinning_requests_total counter
kubelet_cpu_manager_pinning_requests_total 2
# HELP kubelet_cpu_manager_shared_pool_size_millicores [ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.
# TYPE kubelet_cpu_manager_shared_pool_size_millicores gauge
kubelet_cpu_manager_shared_pool_size_millicores 3000
# HELP kubelet_device_plugin_alloc_duration_seconds [ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.
# TYPE kubelet_device_plugin_alloc_duration_seconds histogram
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.005"} 0
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.01"} 0
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.025"} 0
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.05"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.1"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.25"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="0.5"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="1"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="2.5"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="5"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="10"} 1
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="example.com/gpu",le="+Inf"} 1
kubelet_device_plugin_alloc_duration_seconds_sum{resource_name="example.com/gpu"} 0.03
kubelet_device_plugin_alloc_duration_seconds_count{resource_name="example.com/gpu"} 1
# HELP kubelet_device_plugin_registration_total [ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.
# TYPE kubelet_device_plugin_registration_total counter
kubelet_device_plugin_registration_total{resource_name="example.com/gpu"} 1
# HELP kubelet_topology_manager_admission_duration_ms [ALPHA] Duration in milliseconds to serve a pod admission request.
# TYPE kubelet_topology_manager_admission_duration_ms histogram
kubelet_topology_manager_admission_duration_ms_bucket{le="0.05"} 0
kubelet_topology_manager_admission_duration_ms_bucket{le="0.1"} 1
kubelet_topology_manager_admission_duration_ms_bucket{le="0.2"} 1
kubelet_topology_manager_admission_duration_ms_bucket{le="0.4"} 1
kubelet_topology_manager_admission_duration_ms_bucket{le="0.8"} 1
kubelet_topology_manager_admission_duration_ms_bucket{le="1.6"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="3.2"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="6.4"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="12.8"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="25.6"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="51.2"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="102.4"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="204.8"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="409.6"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="819.2"} 2
kubelet_topology_manager_admission_duration_ms_bucket{le="+Inf"} 2
kubelet_topology_manager_admission_duration_ms_sum 1.6
kubelet_topology_manager_admission_duration_ms_count 2
# HELP kubelet_topology_manager_admission_errors_total [ALPHA] The number of admission request failures where resources could not be aligned.
# TYPE kubelet_topology_manager_admission_errors_total counter
kubelet_topology_manager_admission_errors_total 1
# HELP kubelet_topology_manager_admission_requests_total [ALPHA] The number of admission requests where resources have to be aligned.
# TYPE kubelet_topology_manager_admission_requests_total counter
kubelet_topology_manager_admission_requests_total 2
`
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want),
		"kubelet_cpu_manager_pinning_errors_total", "kubelet_cpu_manager_pinning_requests_total", "kubelet_cpu_manager_shared_pool_size_millicores",
		"kubelet_device_plugin_alloc_duration_seconds", "kubelet_device_plugin_registration_total",
		"kubelet_topology_manager_admission_duration_ms", "kubelet_topology_manager_admission_errors_total", "kubelet_topology_manager_admission_requests_total",
	); err != nil {
		t.Error(err)
	}
}
