package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// allocationMetrics are those of CPUs, topology and devices.
type allocationMetrics struct {
	pinningRequests, pinningErrors, admissionRequests, admissionErrors prometheus.Counter
	sharedPool                                                         prometheus.Gauge
	admissionDuration                                                  prometheus.Histogram
	registrations                                                      *prometheus.CounterVec
	deviceAllocation                                                   *prometheus.HistogramVec
}

func newAllocationMetrics() allocationMetrics {
	return allocationMetrics{
		pinningRequests:   plainCounter("cpu_manager_pinning_requests_total", "The number of cpu core allocations which required pinning."),
		pinningErrors:     plainCounter("cpu_manager_pinning_errors_total", "The number of cpu core allocations which required pinning failed."),
		sharedPool:        prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "cpu_manager_shared_pool_size_millicores", Help: alpha + "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores."}),
		admissionRequests: plainCounter("topology_manager_admission_requests_total", "The number of admission requests where resources have to be aligned."),
		admissionErrors:   plainCounter("topology_manager_admission_errors_total", "The number of admission request failures where resources could not be aligned."),
		admissionDuration: histogram("topology_manager_admission_duration_ms", "Duration in milliseconds to serve a pod admission request.", prometheus.ExponentialBuckets(.05, 2, 15)),
		registrations:     counters("device_plugin_registration_total", "Cumulative number of device plugin registrations. Broken down by resource name.", "resource_name"),
		deviceAllocation:  histograms("device_plugin_alloc_duration_seconds", "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.", prometheus.DefBuckets, "resource_name"),
	}
}

func (a allocationMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		a.pinningRequests, a.pinningErrors, a.sharedPool, a.admissionRequests, a.admissionErrors, a.admissionDuration, a.registrations, a.deviceAllocation,
	}
}

func plainCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: alpha + help})
}

// CPUsPinned records the allocation of exclusive CPUs to a container, or its error.
func (a allocationMetrics) CPUsPinned(err error) {
	a.pinningRequests.Inc()
	if err != nil {
		a.pinningErrors.Inc()
	}
}

// SharedCPUs records how many CPUs are neither reserved nor exclusive.
func (a allocationMetrics) SharedCPUs(count int) { a.sharedPool.Set(1000 * float64(count)) }

// TopologyAdmission records the admission of a pod by the topology policy, and whether its
// resources could not be aligned.
func (a allocationMetrics) TopologyAdmission(took time.Duration, failed bool) {
	a.admissionRequests.Inc()
	if failed {
		a.admissionErrors.Inc()
	}
	a.admissionDuration.Observe(float64(took) / float64(time.Millisecond))
}

// DevicePluginRegistered records the registration of the plugin of a resource.
func (a allocationMetrics) DevicePluginRegistered(resource string) {
	a.registrations.WithLabelValues(resource).Inc()
}

// DevicesAllocated records the duration of a plugin's Allocate for a resource.
func (a allocationMetrics) DevicesAllocated(resource string, took time.Duration) {
	a.deviceAllocation.WithLabelValues(resource).Observe(took.Seconds())
}
