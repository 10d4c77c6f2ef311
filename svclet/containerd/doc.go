// Package containerd runs a containerd of the agent's own, for machines on
// which no other container runtime is meant to be used.
//
// [Find] looks for the programs that it takes. [Start] writes the
// configuration, starts containerd in a session of its own, or adopts the one
// that an earlier agent has started, and keeps it running. It and the pods in
// it outlive the agent: [Runtime.Close] only lets go of it. [Runtime.Stop] ends
// containerd, and its pods go on without it; [Reset] ends the pods, too, and
// takes away what they had.
package containerd
