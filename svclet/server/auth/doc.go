// Package auth says who calls the node agent's server, and whether they may.
//
// It is small on purpose: the delegating factories of k8s.io/apiserver bring
// the expression language, an egress selector and a trace exporter with them,
// 8.4 MB of binary and 4.7 MB of resident memory before the first request.
package auth
