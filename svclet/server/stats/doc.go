// Package stats tells what the node and its pods use: the summary of
// /stats/summary and the metrics of /metrics/resource and /metrics/cadvisor.
//
// Everything is found out when somebody asks, and kept for a second: the node's
// from its root cgroup and /proc, the pods' from the container runtime. Nothing
// is sampled while nobody asks. What a processor does at the moment is the
// difference of two samples: the present one, and that of the previous question
// or, if that was long ago, one taken a moment earlier.
package stats
