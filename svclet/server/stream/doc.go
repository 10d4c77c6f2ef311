// Package stream owns the streams of exec, attach and port-forward between clients
// of the node agent and the container runtime.
//
// The agent is an endpoint on both sides and not a proxy: it speaks SPDY and
// websockets to its client with k8s.io/cri-streaming, and SPDY to the URL that the
// runtime returns for the stream. So clients can use protocols that the runtime
// does not support (v5.channel.k8s.io, SPDY tunnelled through websockets), client
// requests never reach the runtime's HTTP server, and redirects by the runtime are
// refused.
package stream
