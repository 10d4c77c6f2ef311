// Package stream runs commands, attached terminals and forwarded ports between
// the clients of the node agent and the container runtime.
//
// Both sides are ends, not a pipe: the agent speaks SPDY and websockets to its
// client with k8s.io/cri-streaming, and SPDY to the address that the runtime
// names for the stream. So clients can use protocols that the runtime does not
// know (v5.channel.k8s.io, SPDY tunnelled through websockets), nothing that a
// client sends reaches the runtime's HTTP server, and a runtime that answers
// with a redirect is refused.
package stream
