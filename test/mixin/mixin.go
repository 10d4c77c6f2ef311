// Package mixin knows the series that the rules, alerts and dashboards of kubernetes-mixin
// (https://github.com/kubernetes-monitoring/kubernetes-mixin) select of each component.
package mixin

import (
	"fmt"
	"slices"
	"strings"
)

// Series are those of a metric that a query selects.
type Series struct {
	// Name is that of the metric.
	Name string
	// Labels are those that the query selects by or groups by: name or name="value".
	Labels []string
}

// Missing describes those series that are not in metrics, which are in Prometheus' text format.
func Missing(metrics string, all []Series) []string {
	lines := strings.Split(metrics, "\n")
	var missing []string
	for _, s := range all {
		if !slices.ContainsFunc(lines, s.matches) {
			missing = append(missing, fmt.Sprintf("%s with %q", s.Name, s.Labels))
		}
	}
	return missing
}

// matches reports whether a line of metrics is one of the series.
func (s Series) matches(line string) bool {
	rest, ok := strings.CutPrefix(line, s.Name)
	if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
		return false
	}
	return !slices.ContainsFunc(s.Labels, func(label string) bool {
		if !strings.Contains(label, "=") {
			label += `="`
		}
		return !strings.Contains(rest, "{"+label) && !strings.Contains(rest, ","+label)
	})
}

// ControlPlane are the series of the API server, the controller manager and the scheduler. The
// mixin has some more that Kubernetes 1.28 does not serve (scheduler_e2e_scheduling_duration_seconds,
// scheduler_binding_duration_seconds, etcd_helper_cache_*), and some that appear only after
// failures (aggregator_unavailable_apiservice_total, apiserver_request_terminations_total).
// Histograms have no label resource (docs/monitoring.md), by which one rule groups.
var ControlPlane = []Series{
	{"apiserver_request_total", []string{"code", "verb", "resource"}},
	{"apiserver_request_sli_duration_seconds_count", []string{"scope", "subresource", `verb="POST"`}},
	{"apiserver_request_sli_duration_seconds_bucket", []string{`scope="resource"`, "subresource", `verb="POST"`, `le="1"`}},
	{"apiserver_request_sli_duration_seconds_bucket", []string{`scope="resource"`, "subresource", `verb="GET"`, `le="1"`}},
	{"apiserver_request_sli_duration_seconds_bucket", []string{`scope="namespace"`, "subresource", `verb="LIST"`, `le="5"`}},
	{"apiserver_request_sli_duration_seconds_bucket", []string{`scope="cluster"`, "subresource", `verb="LIST"`, `le="30"`}},
	{"apiserver_request_sli_duration_seconds_bucket", []string{"scope", "verb", `le="+Inf"`}},
	{"apiserver_request_duration_seconds_bucket", []string{"verb", "le"}},
	{"apiserver_client_certificate_expiration_seconds_count", nil},
	{"apiserver_client_certificate_expiration_seconds_bucket", []string{"le"}},
	{"aggregator_unavailable_apiservice", []string{"name"}},
	{"workqueue_adds_total", []string{"name"}},
	{"workqueue_depth", []string{"name"}},
	{"workqueue_queue_duration_seconds_bucket", []string{"name", "le"}},
	{"rest_client_requests_total", []string{`code="200"`, "host", "method"}},
	{"rest_client_request_duration_seconds_bucket", []string{`verb="GET"`, "host", "le"}},
	{"rest_client_request_duration_seconds_bucket", []string{`verb="POST"`, "host", "le"}},
	{"scheduler_scheduling_algorithm_duration_seconds_bucket", []string{"le"}},
	{"scheduler_scheduling_algorithm_duration_seconds_count", nil},
	{"scheduler_scheduling_attempt_duration_seconds_bucket", []string{"profile", "result", "le"}},
	{"scheduler_pod_scheduling_sli_duration_seconds_bucket", []string{"attempts", "le"}},
	{"process_resident_memory_bytes", nil},
	{"process_cpu_seconds_total", nil},
	{"go_goroutines", nil},
}

// Kubelet are the series of a node agent that runs pods. The mixin has some more that
// Kubernetes 1.28 does not serve (kubelet_node_config_error and storage_operation_errors_total),
// and rest_client_request_duration_seconds has no label url since 1.24. Failures of storage
// operations are those of storage_operation_duration_seconds_count with another status than
// success.
var Kubelet = []Series{
	{"kubelet_node_name", []string{"node"}},
	{"kubelet_running_pods", nil},
	{"kubelet_running_containers", []string{`container_state="running"`}},
	{"volume_manager_total_volumes", []string{"plugin_name", `state="actual_state_of_world"`}},
	{"volume_manager_total_volumes", []string{"plugin_name", `state="desired_state_of_world"`}},
	{"kubelet_runtime_operations_total", []string{"operation_type"}},
	{"kubelet_runtime_operations_errors_total", []string{"operation_type"}},
	{"kubelet_runtime_operations_duration_seconds_bucket", []string{"operation_type", "le"}},
	{"kubelet_pod_start_duration_seconds_count", nil},
	{"kubelet_pod_start_duration_seconds_bucket", []string{"le"}},
	{"kubelet_pod_worker_duration_seconds_count", []string{`operation_type="create"`}},
	{"kubelet_pod_worker_duration_seconds_bucket", []string{"operation_type", "le"}},
	{"storage_operation_duration_seconds_count", []string{`operation_name="volume_mount"`, "volume_plugin", `status="success"`}},
	{"storage_operation_duration_seconds_bucket", []string{"operation_name", "volume_plugin", "le"}},
	{"kubelet_cgroup_manager_duration_seconds_count", []string{`operation_type="create"`}},
	{"kubelet_cgroup_manager_duration_seconds_bucket", []string{"operation_type", "le"}},
	{"kubelet_pleg_relist_duration_seconds_count", nil},
	{"kubelet_pleg_relist_duration_seconds_bucket", []string{"le"}},
	{"kubelet_pleg_relist_interval_seconds_bucket", []string{"le"}},
	{"rest_client_requests_total", []string{`code="200"`, "host", "method"}},
	{"rest_client_request_duration_seconds_bucket", []string{"verb", "host", "le"}},
	{"process_resident_memory_bytes", nil},
	{"process_cpu_seconds_total", nil},
	{"go_goroutines", nil},
}

// Certificates are the series of a node agent that renews its client and its serving
// certificate.
var Certificates = []Series{
	{"kubelet_certificate_manager_client_ttl_seconds", nil},
	{"kubelet_certificate_manager_client_expiration_renew_errors", nil},
	{"kubelet_certificate_manager_server_ttl_seconds", nil},
	{"kubelet_server_expiration_renew_errors", nil},
}

// Volumes are the series of a node agent with a volume of a claim whose driver or file system
// measures it.
var Volumes = []Series{
	{"kubelet_volume_stats_available_bytes", []string{"namespace", "persistentvolumeclaim"}},
	{"kubelet_volume_stats_capacity_bytes", []string{"namespace", "persistentvolumeclaim"}},
	{"kubelet_volume_stats_used_bytes", []string{"namespace", "persistentvolumeclaim"}},
	{"kubelet_volume_stats_inodes", []string{"namespace", "persistentvolumeclaim"}},
	{"kubelet_volume_stats_inodes_free", []string{"namespace", "persistentvolumeclaim"}},
	{"kubelet_volume_stats_inodes_used", []string{"namespace", "persistentvolumeclaim"}},
}
