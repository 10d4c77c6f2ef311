package metrics

import "github.com/prometheus/client_golang/prometheus"

// Counts are numbers of pods and containers.
type Counts struct {
	// RunningPods is the number of pods with a ready sandbox.
	RunningPods int
	// Containers is the number of containers in the runtime by state: "running",
	// "exited", "created", "unknown".
	Containers map[string]int
	// Desired is the number of pods that the sources want, Active that of those which
	// have not terminated; Static ones come from files or a URL.
	Desired, DesiredStatic, Active, ActiveStatic int
	// Mirrors is the number of mirror pods that should exist.
	Mirrors int
}

// Count registers metrics of the numbers that now returns at each scrape.
func (m *Metrics) Count(now func() Counts) { m.Register(counter(now)) }

type counter func() Counts

var (
	runningPods       = prometheus.NewDesc("kubelet_running_pods", alpha+"Number of pods that have a running pod sandbox", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", alpha+"Number of containers currently running", []string{"container_state"}, nil)
	desiredPods       = prometheus.NewDesc("kubelet_desired_pods", alpha+"The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	activePods        = prometheus.NewDesc("kubelet_active_pods", alpha+"The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	mirrorPods        = prometheus.NewDesc("kubelet_mirror_pods", alpha+"The number of mirror pods the kubelet will try to create (one per admitted static pod)", nil, nil)
)

// Describe implements prometheus.Collector.
func (c counter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runningPods, runningContainers, desiredPods, activePods, mirrorPods} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c counter) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	n := c()
	gauge(runningPods, n.RunningPods)
	for state, count := range n.Containers {
		gauge(runningContainers, count, state)
	}
	gauge(desiredPods, n.Desired, "")
	gauge(desiredPods, n.DesiredStatic, "true")
	gauge(activePods, n.Active, "")
	gauge(activePods, n.ActiveStatic, "true")
	gauge(mirrorPods, n.Mirrors)
}
