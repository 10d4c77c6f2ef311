package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ProbeKind is the kind of a probe.
type ProbeKind string

// The kinds of probes.
const (
	Startup   ProbeKind = "Startup"
	Readiness ProbeKind = "Readiness"
	Liveness  ProbeKind = "Liveness"
)

// Probe is a probe that is to run for as long as it is in the output of
// [Machine.Next].
type Probe struct {
	Kind ProbeKind
	// Container is the name in the spec, ContainerID the runtime's ID of the current
	// attempt.
	Container, ContainerID string
	Spec                   *corev1.Probe
	// Since is when the container started: InitialDelaySeconds counts from it.
	Since time.Time
}

// ProbeResult is the result of a probe once its success or failure threshold is
// reached.
type ProbeResult struct {
	Kind        ProbeKind
	ContainerID string
	Success     bool
	// Message is the reason of the failure.
	Message string
}
