// Package host owns the agent's requirements on its machine: [Check] refuses
// unsuitable machines, [Prepare] sets up the kernel and the process, and [Lock]
// prevents a second agent.
package host
