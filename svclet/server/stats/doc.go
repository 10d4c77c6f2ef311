// Package stats owns the resource usage statistics of the node and its pods: the
// summary of /stats/summary and the metrics of /metrics/resource and
// /metrics/cadvisor.
//
// Everything is measured on request and cached for a second: the node from its
// root cgroup and /proc, the pods from the container runtime. Nothing is sampled
// between requests. CPU usage in nanocores is the difference of two samples: the
// current one, and that of the previous request or, if that is too old, one taken
// a moment earlier.
package stats
