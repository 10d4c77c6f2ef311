package stats

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The metrics of /metrics/cadvisor that the runtime's statistics provide, under
// cAdvisor's names: those that dashboards of pods use. cAdvisor's labels "id",
// "name" and "image" are left out: they add no information and start a new series
// at each restart of a container.
var (
	cadvisorCPU         = describe("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", append([]string{"cpu"}, containerLabels...))
	cadvisorWorkingSet  = describe("container_memory_working_set_bytes", "Current working set in bytes.", containerLabels)
	cadvisorMemory      = describe("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", containerLabels)
	cadvisorRSS         = describe("container_memory_rss", "Size of RSS in bytes.", containerLabels)
	cadvisorSwap        = describe("container_memory_swap", "Container swap usage in bytes.", containerLabels)
	cadvisorFilesystem  = describe("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", containerLabels)
	cadvisorStart       = describe("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", containerLabels)
	cadvisorProcesses   = describe("container_processes", "Number of processes running inside the container.", containerLabels)
	cadvisorReceived    = describe("container_network_receive_bytes_total", "Cumulative count of bytes received", append([]string{"interface"}, containerLabels...))
	cadvisorReceiveErr  = describe("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", append([]string{"interface"}, containerLabels...))
	cadvisorTransmitted = describe("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", append([]string{"interface"}, containerLabels...))
	cadvisorTransmitErr = describe("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", append([]string{"interface"}, containerLabels...))
	cadvisorError       = describe("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil)
)

// Cadvisor returns the metrics of /metrics/cadvisor.
func (p *Provider) Cadvisor() prometheus.Collector { return cadvisor{p} }

type cadvisor struct{ p *Provider }

// Describe implements prometheus.Collector.
func (c cadvisor) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		cadvisorCPU, cadvisorWorkingSet, cadvisorMemory, cadvisorRSS, cadvisorSwap, cadvisorFilesystem, cadvisorStart, cadvisorProcesses,
		cadvisorReceived, cadvisorReceiveErr, cadvisorTransmitted, cadvisorTransmitErr, cadvisorError,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A pod as a whole has the container name
// "", as in cAdvisor.
func (c cadvisor) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s, err := c.p.Summary(ctx, false)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to get stats summary for /metrics/cadvisor")
		ch <- prometheus.MustNewConstMetric(cadvisorError, prometheus.GaugeValue, 1)
		return
	}
	ch <- prometheus.MustNewConstMetric(cadvisorError, prometheus.GaugeValue, 0)
	for _, pod := range newestOfEachName(s.Pods) {
		name, namespace := pod.PodRef.Name, pod.PodRef.Namespace
		for _, each := range pod.Containers {
			collectCadvisor(ch, each.CPU, each.Memory, each.Swap, each.Name, name, namespace)
			ch <- prometheus.MustNewConstMetric(cadvisorStart, prometheus.GaugeValue, seconds(each.StartTime.UnixNano()), each.Name, name, namespace)
			if f := each.Rootfs; f != nil && f.UsedBytes != nil {
				collect(ch, f.Time.Time, cadvisorFilesystem, prometheus.GaugeValue, float64(*f.UsedBytes), each.Name, name, namespace)
			}
		}
		collectCadvisor(ch, pod.CPU, pod.Memory, pod.Swap, "", name, namespace)
		if n := pod.ProcessStats; n != nil && n.ProcessCount != nil {
			ch <- prometheus.MustNewConstMetric(cadvisorProcesses, prometheus.GaugeValue, float64(*n.ProcessCount), "", name, namespace)
		}
		if pod.Network != nil {
			collectNetwork(ch, pod.Network, name, namespace)
		}
	}
}

func collectCadvisor(ch chan<- prometheus.Metric, cpu *statsapi.CPUStats, m *statsapi.MemoryStats, swap *statsapi.SwapStats, labels ...string) {
	collectCPU(ch, cadvisorCPU, cpu, append([]string{"total"}, labels...)...)
	collectMemory(ch, cadvisorWorkingSet, m, labels...)
	collectSwap(ch, cadvisorSwap, swap, labels...)
	if m != nil {
		collectKnown(ch, m.Time.Time, cadvisorMemory, prometheus.GaugeValue, m.UsageBytes, labels...)
		collectKnown(ch, m.Time.Time, cadvisorRSS, prometheus.GaugeValue, m.RSSBytes, labels...)
	}
}

func collectNetwork(ch chan<- prometheus.Metric, n *statsapi.NetworkStats, name, namespace string) {
	for _, i := range n.Interfaces {
		labels := []string{i.Name, "", name, namespace}
		collectKnown(ch, n.Time.Time, cadvisorReceived, prometheus.CounterValue, i.RxBytes, labels...)
		collectKnown(ch, n.Time.Time, cadvisorReceiveErr, prometheus.CounterValue, i.RxErrors, labels...)
		collectKnown(ch, n.Time.Time, cadvisorTransmitted, prometheus.CounterValue, i.TxBytes, labels...)
		collectKnown(ch, n.Time.Time, cadvisorTransmitErr, prometheus.CounterValue, i.TxErrors, labels...)
	}
}

func collectKnown(ch chan<- prometheus.Metric, at time.Time, d *prometheus.Desc, kind prometheus.ValueType, value *uint64, labels ...string) {
	if value != nil {
		collect(ch, at, d, kind, float64(*value), labels...)
	}
}
