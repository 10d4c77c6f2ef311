// Package node shows this machine in the API: as a Node, whose status tells
// what the machine has and whether it can run pods, and by a Lease, which tells
// that the agent lives.
//
// [Node.Run] registers the node, and does so anew when somebody has deleted it.
// The status is computed at an interval and whenever [Node.Changed] asks for
// it, and written only when it has changed, or so rarely that it costs nothing.
package node
