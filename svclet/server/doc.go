// Package server owns the node agent's HTTP server: kubelet's paths on its three
// ports.
//
//	10250  TLS, authentication and authorization: everything
//	10255  neither: /pods, /metrics and what is below it, /stats/summary, /healthz
//	10248  neither, on the loopback address: /healthz
//
// Pods, the runtime, statistics and metrics are passed to it. Authentication and
// authorization are in package auth, streams in package stream.
//
// These paths of kubelet are not supported: /statusz and /flagz (their feature gates
// are off), and /metrics/slis.
package server
