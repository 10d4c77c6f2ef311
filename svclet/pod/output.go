package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Output is the result of [Machine.Next].
type Output struct {
	// Start are the operations to start now.
	Start []Operation
	// Probes are all the probes that are to run from now on.
	Probes []Probe
	// Status is the pod's status for the API server.
	Status corev1.PodStatus
	// Events are the events to record now.
	Events []Event
	// Wake is when Next is to be called again even if nothing happens; zero means
	// never.
	Wake time.Time
	// Ended reports that no container runs and none will be started. Status is then
	// final; the TearDown operation may still be using volumes.
	Ended bool
	// Released reports that nothing of the pod is left on this node. If the pod is
	// being deleted, its object may be removed.
	Released bool
}

// Event is an event about the pod, or about one of its containers.
type Event struct {
	// corev1.EventTypeNormal or EventTypeWarning
	Type, Reason, Message string
	// Container is the name of the container in the spec, if the event is about one.
	Container string
	// Annotations are those of the event's object.
	Annotations map[string]string
}
