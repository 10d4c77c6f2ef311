// Package runtime is the connection to the container runtime, through CRI, and
// the observation of the pods that it holds.
//
// [Connect] gives a [Client]. Its calls create, start, stop and remove
// sandboxes and containers; [Client.Pods] and [Client.Pod] tell what is there;
// [Client.Watch] tells what changes, as it changes. What the agent has to
// remember of a pod is written on its sandboxes and containers, as labels and
// annotations (labels.go): after a restart the runtime is the agent's memory.
package runtime
