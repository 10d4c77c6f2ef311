package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ProbeKind is what a probe is for.
type ProbeKind string

// The kinds of probes.
const (
	Startup   ProbeKind = "Startup"
	Readiness ProbeKind = "Readiness"
	Liveness  ProbeKind = "Liveness"
)

// Probe is a probe that is to run, for as long as it is in the output of
// [Machine.Next].
type Probe struct {
	Kind ProbeKind
	// Container is a name, ContainerID the runtime's identity of its present
	// attempt.
	Container, ContainerID string
	Spec                   *corev1.Probe
	// Since is when the container started: InitialDelaySeconds counts from it.
	Since time.Time
}

// ProbeResult is what a probe has found, once it has found it as often in a
// row as its threshold says.
type ProbeResult struct {
	Kind        ProbeKind
	ContainerID string
	Success     bool
	// Message says why it failed.
	Message string
}
