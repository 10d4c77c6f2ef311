// Package server is the node agent's HTTP server: the paths of kubelet, on its
// three ports.
//
//	10250  TLS, authentication and authorization: everything
//	10255  neither: /pods, /metrics and what is below it, /stats/summary, /healthz
//	10248  neither, on the loopback address: /healthz
//
// What it serves it is given: pods, a runtime, statistics, metrics. Who may ask
// is the matter of package auth; streams are that of package stream.
//
// Of kubelet's paths these are absent: /checkpoint (needs a feature gate that
// is off), /statusz and /flagz (likewise), the query parameters of /logs that
// search the system's journal, and /metrics/slis.
package server
