package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Output is what [Machine.Next] wants done.
type Output struct {
	// Start are operations to start now.
	Start []Operation
	// Probes are all probes that are to run from now on.
	Probes []Probe
	// Status is what the API is to show.
	Status corev1.PodStatus
	// Events are to be recorded now.
	Events []Event
	// Wake is when Next is to be asked again although nothing has happened;
	// zero for never.
	Wake time.Time
	// Ended says that no container runs any more and none will. Status is the
	// last one; volumes may still be in use by the operation that releases
	// them.
	Ended bool
	// Released says that nothing of the pod is left on this node. When the pod
	// is being deleted, its object may go.
	Released bool
}

// Event is one to be recorded about the pod, or about one of its containers.
type Event struct {
	// Type is that of corev1.Event: Normal or Warning.
	Type, Reason, Message string
	// Container is the name of the container in the spec, if it is about one.
	Container string
}
