package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
)

// Metrics are the agent's metrics. Its methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	clock    clock.PassiveClock

	operations, operationErrors *prometheus.CounterVec
	operationDuration           *prometheus.HistogramVec
	sandboxDuration             *prometheus.HistogramVec
	sandboxErrors               *prometheus.CounterVec

	podStart, podStartSLI, podStartTotal prometheus.Histogram
	workerStart, statusSync              prometheus.Histogram
	containersPerPod                     prometheus.Histogram

	startedPods                                prometheus.Counter
	startedPodErrors                           *prometheus.CounterVec
	startedContainers, startedContainersErrors *prometheus.CounterVec
	admissionRejections                        *prometheus.CounterVec
	evictions, imagesCollected                 *prometheus.CounterVec
	evictionStatsAge                           *prometheus.HistogramVec

	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec
	inflight        *prometheus.GaugeVec

	client *clientMetrics
	allocationMetrics
	imageVolumeMetrics
	syncMetrics
}

// startup are the buckets of pod start durations, in seconds.
var startup = []float64{
	0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

// New returns the metrics of a node, including those of its process. The clock
// measures requests.
func New(nodeName string, c clock.PassiveClock) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), clock: c, client: newClientMetrics(), allocationMetrics: newAllocationMetrics(), imageVolumeMetrics: newImageVolumeMetrics(), syncMetrics: newSyncMetrics(),

		operations:        counters("runtime_operations_total", "Cumulative number of runtime operations by operation type.", "operation_type"),
		operationErrors:   counters("runtime_operations_errors_total", "Cumulative number of runtime operation errors by operation type.", "operation_type"),
		operationDuration: histograms("runtime_operations_duration_seconds", "Duration in seconds of runtime operations. Broken down by operation type.", prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
		sandboxDuration:   histograms("run_podsandbox_duration_seconds", "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.", prometheus.DefBuckets, "runtime_handler"),
		sandboxErrors:     counters("run_podsandbox_errors_total", "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.", "runtime_handler"),

		podStart:         histogram("pod_start_duration_seconds", "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", startup),
		podStartSLI:      histogram("pod_start_sli_duration_seconds", "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", startup),
		podStartTotal:    histogram("pod_start_total_duration_seconds", "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", startup),
		workerStart:      histogram("pod_worker_start_duration_seconds", "Duration in seconds from kubelet seeing a pod to starting a worker.", prometheus.DefBuckets),
		statusSync:       histogram("pod_status_sync_duration_seconds", "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.", []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}),
		containersPerPod: histogram("containers_per_pod_count", "The number of containers per pod.", prometheus.ExponentialBuckets(1, 2, 5)),

		startedPods:             prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "started_pods_total", Help: alpha + "Cumulative number of pods started"}),
		startedPodErrors:        counters("started_pods_errors_total", "Cumulative number of errors when starting pods"),
		startedContainers:       counters("started_containers_total", "Cumulative number of containers started", "container_type"),
		startedContainersErrors: counters("started_containers_errors_total", "Cumulative number of errors when starting containers", "container_type", "code"),
		evictions:               counters("evictions", "Cumulative number of pod evictions by eviction signal", "eviction_signal"),
		imagesCollected:         counters("image_garbage_collected_total", "Total number of images garbage collected by the kubelet, whether through disk usage or image age.", "reason"),
		evictionStatsAge:        histograms("eviction_stats_age_seconds", "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal", prometheus.DefBuckets, "eviction_signal"),
		admissionRejections:     counters("admission_rejections_total", "Cumulative number pod admission rejections by the Kubelet.", "reason"),

		requests:        counters("http_requests_total", "Number of the http requests received since the server started", requestLabels...),
		requestDuration: histograms("http_requests_duration_seconds", "Duration in seconds to serve http requests", prometheus.DefBuckets, requestLabels...),
		inflight:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: "http_inflight_requests", Help: alpha + "Number of the inflight http requests"}, requestLabels),
	}
	node := prometheus.NewGauge(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "node_name", Help: alpha + "The node's name. The count is always 1.",
		ConstLabels: prometheus.Labels{"node": nodeName},
	})
	node.Set(1)
	m.Register(
		m.operations, m.operationErrors, m.operationDuration, m.sandboxDuration, m.sandboxErrors,
		m.podStart, m.podStartSLI, m.podStartTotal, m.workerStart, m.statusSync, m.containersPerPod,
		m.startedPods, m.startedPodErrors, m.startedContainers, m.startedContainersErrors, m.admissionRejections, m.evictions, m.imagesCollected, m.evictionStatsAge,
		m.requests, m.requestDuration, m.inflight, m.client.requests, m.client.duration, node, buildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.Register(m.allocationMetrics.collectors()...)
	m.Register(m.imageVolumeMetrics.collectors()...)
	m.Register(m.syncMetrics.collectors()...)
	return m
}

// Register adds metrics of other packages. It panics on a duplicate name, which is
// a programming error.
func (m *Metrics) Register(c ...prometheus.Collector) { m.registry.MustRegister(c...) }

// Gatherer returns the gatherer for /metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// RuntimeOperation records a request to the container runtime.
func (m *Metrics) RuntimeOperation(operation string, took time.Duration, err error) {
	m.operations.WithLabelValues(operation).Inc()
	m.operationDuration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(operation).Inc()
	}
}

// SandboxRun records the start of a sandbox by a runtime handler.
func (m *Metrics) SandboxRun(handler string, took time.Duration, err error) {
	m.startedPods.Inc()
	m.sandboxDuration.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.startedPodErrors.WithLabelValues().Inc()
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

// The types of containers.
const (
	Container          = "container"
	InitContainer      = "init_container"
	EphemeralContainer = "ephemeral_container"
)

// ContainerStarted records the start of a container of one of the types. reason is
// that of its waiting state, for example "ErrImagePull", and empty if it has
// started.
func (m *Metrics) ContainerStarted(kind, reason string) {
	m.startedContainers.WithLabelValues(kind).Inc()
	if reason != "" {
		m.startedContainersErrors.WithLabelValues(kind, reason).Inc()
	}
}

// PodSeen records a new pod and the time until the agent began with it.
func (m *Metrics) PodSeen(containers int, began time.Duration) {
	m.containersPerPod.Observe(float64(containers))
	m.workerStart.Observe(began.Seconds())
}

// PodRunning records that all containers of a pod have started: the time since the
// agent received the pod, the time since its creation, and how much of it was
// spent on pulling images and on init containers.
func (m *Metrics) PodRunning(known, existed, pulling time.Duration) {
	m.podStart.Observe(known.Seconds())
	m.podStartTotal.Observe(existed.Seconds())
	m.podStartSLI.Observe(max(existed-pulling, 0).Seconds())
}

// EvictionStats records how old the statistics are by which a pod is evicted.
func (m *Metrics) EvictionStats(signal string, age time.Duration) {
	m.evictionStatsAge.WithLabelValues(signal).Observe(age.Seconds())
}

// ImageCollected records the removal of an unused image, by its reason: "age" or "space".
func (m *Metrics) ImageCollected(reason string) { m.imagesCollected.WithLabelValues(reason).Inc() }

// PodEvicted records an eviction by its signal.
func (m *Metrics) PodEvicted(signal string) { m.evictions.WithLabelValues(signal).Inc() }

// PodRejected records a pod that is not admitted to the node.
func (m *Metrics) PodRejected(reason string) { m.admissionRejections.WithLabelValues(reason).Inc() }

// StatusWritten records the time from the change of a status to its update in the
// API server.
func (m *Metrics) StatusWritten(took time.Duration) { m.statusSync.Observe(took.Seconds()) }

var requestLabels = []string{"method", "path", "server_type", "long_running"}

// Begin records the start of a request to the agent's server, and returns the
// function to call at its end.
func (m *Metrics) Begin(method, path, server string, longRunning bool) func() {
	labels := []string{method, path, server, strconv.FormatBool(longRunning)}
	m.requests.WithLabelValues(labels...).Inc()
	m.inflight.WithLabelValues(labels...).Inc()
	began := m.clock.Now()
	return func() {
		m.inflight.WithLabelValues(labels...).Dec()
		m.requestDuration.WithLabelValues(labels...).Observe(m.clock.Since(began).Seconds())
	}
}

const (
	subsystem = "kubelet"
	alpha     = "[ALPHA] "
)

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: alpha + help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: alpha + help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: alpha + help, Buckets: buckets}, labels)
}

func buildInfo() prometheus.Collector {
	v := version.Get()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: alpha + "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	})
	g.Set(1)
	return g
}
