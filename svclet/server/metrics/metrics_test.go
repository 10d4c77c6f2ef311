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

func TestKubeletsMetricsExist(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	m := metrics.New("node-1", c)
	m.Count(func() metrics.Counts {
		return metrics.Counts{RunningPods: 2, Containers: map[string]int{"running": 3}, Desired: 4, DesiredStatic: 1, Active: 2, ActiveStatic: 1, Mirrors: 1}
	})
	m.RuntimeOperation("list_containers", time.Second, nil)
	m.RuntimeOperation("list_containers", time.Second, errors.New("away"))
	m.SandboxRun("", time.Second, nil)
	m.ContainerStarted(metrics.Container, "")
	m.ContainerStarted(metrics.InitContainer, "ErrImagePull")
	m.PodSeen(2, time.Millisecond)
	m.PodRunning(time.Second, 2*time.Second, time.Second)
	m.PodRejected("OutOfcpu")
	m.StatusWritten(time.Second)
	end := m.Begin("GET", "pods", "readwrite", false)

	want := `
# HELP kubelet_admission_rejections_total [ALPHA] Cumulative number pod admission rejections by the Kubelet.
# TYPE kubelet_admission_rejections_total counter
kubelet_admission_rejections_total{reason="OutOfcpu"} 1
# HELP kubelet_desired_pods [ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.
# TYPE kubelet_desired_pods gauge
kubelet_desired_pods{static=""} 4
kubelet_desired_pods{static="true"} 1
# HELP kubelet_http_inflight_requests [ALPHA] Number of the inflight http requests
# TYPE kubelet_http_inflight_requests gauge
kubelet_http_inflight_requests{long_running="false",method="GET",path="pods",server_type="readwrite"} 1
# HELP kubelet_node_name [ALPHA] The node's name. The count is always 1.
# TYPE kubelet_node_name gauge
kubelet_node_name{node="node-1"} 1
# HELP kubelet_running_containers [ALPHA] Number of containers currently running
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="running"} 3
# HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox
# TYPE kubelet_running_pods gauge
kubelet_running_pods 2
# HELP kubelet_runtime_operations_errors_total [ALPHA] Cumulative number of runtime operation errors by operation type.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="list_containers"} 1
# HELP kubelet_runtime_operations_total [ALPHA] Cumulative number of runtime operations by operation type.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="list_containers"} 2
# HELP kubelet_started_containers_errors_total [ALPHA] Cumulative number of errors when starting containers
# TYPE kubelet_started_containers_errors_total counter
kubelet_started_containers_errors_total{code="ErrImagePull",container_type="init_container"} 1
# HELP kubelet_started_pods_total [ALPHA] Cumulative number of pods started
# TYPE kubelet_started_pods_total counter
kubelet_started_pods_total 1
`
	err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want),
		"kubelet_admission_rejections_total", "kubelet_desired_pods", "kubelet_http_inflight_requests", "kubelet_node_name",
		"kubelet_running_containers", "kubelet_running_pods", "kubelet_runtime_operations_errors_total", "kubelet_runtime_operations_total",
		"kubelet_started_containers_errors_total", "kubelet_started_pods_total")
	if err != nil {
		t.Error(err)
	}
	end()
	for _, name := range []string{
		"process_start_time_seconds", "go_goroutines", "kubernetes_build_info", "kubelet_pod_start_duration_seconds",
		"kubelet_pod_start_sli_duration_seconds", "kubelet_pod_worker_start_duration_seconds", "kubelet_pod_status_sync_duration_seconds",
		"kubelet_runtime_operations_duration_seconds", "kubelet_run_podsandbox_duration_seconds", "kubelet_http_requests_duration_seconds",
	} {
		if n, err := testutil.GatherAndCount(m.Gatherer(), name); err != nil || n == 0 {
			t.Errorf("%s is served %d times, %v", name, n, err)
		}
	}
}
