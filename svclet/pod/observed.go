package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observed is what the runtime holds of one pod.
type Observed struct {
	// Sandboxes and Containers are ordered by Attempt, newest first, and include earlier
	// attempts that the runtime keeps. CreatedAt does not order them: the clock may have been
	// set back.
	Sandboxes  []Sandbox
	Containers []Container
	// Sequence orders the observations of one pod: an observation with a lower number
	// than a previous one is outdated and must be ignored.
	Sequence uint64
}

// Sandbox is one sandbox of a pod.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are the sandbox's addresses, the primary one first. A pod on the host
	// network has none.
	IPs []string
}

// State is the state of a container.
type State string

// The states are those of CRI's ContainerState.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Container is one attempt of a container of the pod.
type Container struct {
	// ID is the runtime's ID without the scheme, Runtime the scheme ("containerd").
	ID, Runtime string
	Name        string
	// Attempt counts from 0; the status shows it as the restart count.
	Attempt   uint32
	SandboxID string
	State     State

	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	// Reason and Message are the runtime's ("OOMKilled", "Error", "Completed"). The
	// Message of an exited container is its termination message, if it wrote one.
	Reason, Message string

	Image, ImageID string
	// SpecHash is the hash of the spec that the container was created from; see
	// [SpecHash].
	SpecHash uint64
	User     *corev1.ContainerUser
	Mounts   []corev1.VolumeMountStatus
	// StopSignal is the signal that stops the container, nil if the runtime does not report it.
	StopSignal *corev1.Signal
	// Grace is the pod's termination grace period when the container was created, in
	// seconds; PreStop is the container's hook, and Ports are the ports that the hook
	// may name. They are needed for pods that no source wants any more.
	Grace   int64
	PreStop *corev1.LifecycleHandler
	Ports   []corev1.ContainerPort
	// CreatedWith are the CPU and memory that the container was created with; nil if
	// the agent has not recorded them.
	CreatedWith *corev1.ResourceRequirements
	// Resources are the resources in force, if the runtime reports them.
	Resources *corev1.ResourceRequirements
}
