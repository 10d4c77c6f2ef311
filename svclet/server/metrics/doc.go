// Package metrics owns those metrics of /metrics that belong to no other package
// of the node agent. Names, help texts and labels are kubelet's, so that its
// dashboards and alerts work.
//
// The registry is the agent's own: the metrics that libraries register in the
// global one are not served. Those of client-go, rest_client_requests_total and its
// companions, are recorded here.
package metrics
