// Package metrics holds the metrics of /metrics that belong to no other folder
// of the node agent. Names, helps and labels are kubelet's, so that its
// dashboards and alerts work.
//
// The registry is the agent's own: what libraries put into the process-wide
// one, such as client-go's rest_client_requests_total, is not served.
package metrics
