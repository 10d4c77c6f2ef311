// Package runtime owns the connection to the container runtime through CRI, and
// the observation of the pods that the runtime holds.
//
// [Connect] returns a [Client]. Its methods create, start, stop and remove
// sandboxes and containers; [Client.Pods] and [Client.Pod] return what exists;
// [Client.Watch] reports changes as they happen. What the agent has to know about
// a pod after a restart is stored as labels and annotations of its sandboxes and
// containers (labels.go).
package runtime
