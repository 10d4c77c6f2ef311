package pod

// Eviction is why and how the node ends a pod.
type Eviction struct {
	// Reason and Message are those of the pod's status and of the event.
	Reason, Message string
	// Annotations are those of the event.
	Annotations map[string]string
	// Disruption is the message of the pod's condition DisruptionTarget, empty if the pod
	// itself is the cause.
	Disruption string
	// Signal is the eviction signal that metrics count.
	Signal string
	// Grace, in seconds, shortens the termination grace period unless it is nil.
	Grace *int64
}
