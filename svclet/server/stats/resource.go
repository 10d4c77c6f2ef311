package stats

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The labels of metrics of containers and of pods.
var (
	containerLabels = []string{"container", "pod", "namespace"}
	podLabels       = []string{"pod", "namespace"}
)

// The metrics of /metrics/resource, which metrics-server reads. Names, help texts
// and labels are kubelet's.
var (
	nodeCPU         = describe("node_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the node in core-seconds", nil)
	nodeMemory      = describe("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes", nil)
	nodeSwap        = describe("node_swap_usage_bytes", "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems", nil)
	containerStart  = describe("container_start_time_seconds", "[STABLE] Start time of the container since unix epoch in seconds", containerLabels)
	containerCPU    = describe("container_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the container in core-seconds", containerLabels)
	containerMemory = describe("container_memory_working_set_bytes", "[STABLE] Current working set of the container in bytes", containerLabels)
	containerSwap   = describe("container_swap_usage_bytes", "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", containerLabels)
	containerLimit  = describe("container_swap_limit_bytes", "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", containerLabels)
	podCPU          = describe("pod_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", podLabels)
	podMemory       = describe("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes", podLabels)
	podSwap         = describe("pod_swap_usage_bytes", "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", podLabels)
	resourceError   = describe("resource_scrape_error", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", nil)
)

func describe(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Resource returns the metrics of /metrics/resource.
func (p *Provider) Resource() prometheus.Collector { return resource{p} }

type resource struct{ p *Provider }

// Describe implements prometheus.Collector.
func (r resource) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		nodeCPU, nodeMemory, nodeSwap, containerStart, containerCPU, containerMemory, containerSwap, containerLimit,
		podCPU, podMemory, podSwap, resourceError,
	} {
		ch <- d
	}
}

// scrapeTimeout bounds a scrape, which has no context of its own.
const scrapeTimeout = 30 * time.Second

// Collect implements prometheus.Collector.
func (r resource) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s, err := r.p.find(ctx, true, false)
	failed := 0.0
	if err != nil {
		failed = 1
		klog.FromContext(ctx).Error(err, "Failed to get stats summary for /metrics/resource")
	} else {
		collectNode(ch, s.Node)
		for _, pod := range newestOfEachName(s.Pods) {
			collectPod(ch, pod)
		}
	}
	ch <- prometheus.MustNewConstMetric(resourceError, prometheus.GaugeValue, failed)
}

func collectNode(ch chan<- prometheus.Metric, n statsapi.NodeStats) {
	collectCPU(ch, nodeCPU, n.CPU)
	collectMemory(ch, nodeMemory, n.Memory)
	collectSwap(ch, nodeSwap, n.Swap)
}

func collectPod(ch chan<- prometheus.Metric, pod statsapi.PodStats) {
	name, namespace := pod.PodRef.Name, pod.PodRef.Namespace
	for _, c := range pod.Containers {
		if c.StartTime.Unix() > 0 {
			ch <- prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, seconds(c.StartTime.UnixNano()), c.Name, name, namespace)
		}
		collectCPU(ch, containerCPU, c.CPU, c.Name, name, namespace)
		collectMemory(ch, containerMemory, c.Memory, c.Name, name, namespace)
		collectSwap(ch, containerSwap, c.Swap, c.Name, name, namespace)
		if s := c.Swap; s != nil && s.SwapAvailableBytes != nil {
			limit := *s.SwapAvailableBytes
			if s.SwapUsageBytes != nil {
				limit += *s.SwapUsageBytes
			}
			collect(ch, s.Time.Time, containerLimit, prometheus.GaugeValue, float64(limit), c.Name, name, namespace)
		}
	}
	collectCPU(ch, podCPU, pod.CPU, name, namespace)
	collectMemory(ch, podMemory, pod.Memory, name, namespace)
	collectSwap(ch, podSwap, pod.Swap, name, namespace)
}

func collectCPU(ch chan<- prometheus.Metric, d *prometheus.Desc, s *statsapi.CPUStats, labels ...string) {
	if s != nil && s.UsageCoreNanoSeconds != nil {
		collect(ch, s.Time.Time, d, prometheus.CounterValue, float64(*s.UsageCoreNanoSeconds)/float64(time.Second), labels...)
	}
}

func collectMemory(ch chan<- prometheus.Metric, d *prometheus.Desc, s *statsapi.MemoryStats, labels ...string) {
	if s != nil && s.WorkingSetBytes != nil {
		collect(ch, s.Time.Time, d, prometheus.GaugeValue, float64(*s.WorkingSetBytes), labels...)
	}
}

func collectSwap(ch chan<- prometheus.Metric, d *prometheus.Desc, s *statsapi.SwapStats, labels ...string) {
	if s != nil && s.SwapUsageBytes != nil {
		collect(ch, s.Time.Time, d, prometheus.GaugeValue, float64(*s.SwapUsageBytes), labels...)
	}
}

// collect sends a value with the time at which it was measured.
func collect(ch chan<- prometheus.Metric, at time.Time, d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	ch <- prometheus.NewMetricWithTimestamp(at, prometheus.MustNewConstMetric(d, kind, value, labels...))
}

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / float64(time.Second) }
