// Package containerd owns the agent's own containerd process, for machines without
// another container runtime.
//
// [Find] finds the required programs. [Start] writes the configuration, starts
// containerd in a session of its own, or adopts the one that an earlier agent
// started, and restarts it when it exits. containerd and its pods outlive the
// agent: [Runtime.Close] releases it. [Runtime.Stop] stops containerd, while its
// pods go on; [Reset] also stops the pods and removes their resources.
package containerd
