// Package node owns this machine's Node object and its Lease in the API server.
//
// [Node.Run] registers the node, and registers it again after it was deleted. It
// computes the status periodically and after [Node.Changed], and writes it when it
// has changed, or after the report interval.
package node
