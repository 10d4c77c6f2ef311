package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observed is what the runtime holds of one pod.
type Observed struct {
	// Sandboxes and Containers are in the order of their creation, the newest
	// first; containers of earlier attempts that the runtime still keeps are
	// among them.
	Sandboxes  []Sandbox
	Containers []Container
	// Sequence orders the observations of one pod: of two, that with the
	// higher one is the newer, and the older one is to be forgotten.
	Sequence uint64
}

// Sandbox is one sandbox of a pod.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are its addresses, the primary one first. Those of a pod on the
	// host's network are not among them.
	IPs []string
}

// State is what a container is doing.
type State string

// The states of CRI's ContainerState.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Container is one container of a pod, of whichever attempt.
type Container struct {
	// ID is the runtime's, without its scheme; Runtime is that scheme
	// ("containerd").
	ID, Runtime string
	Name        string
	// Attempt counts from 0; it is the restart count of its status.
	Attempt   uint32
	SandboxID string
	State     State

	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	// Reason and Message are the runtime's ("OOMKilled", "Error", "Completed").
	// Of a container that has ended, Message is its termination message, where
	// it left one.
	Reason, Message string

	Image, ImageID string
	// SpecHash is that of the spec from which it was made; see [SpecHash].
	SpecHash uint64
	User     *corev1.ContainerUser
	Mounts   []corev1.VolumeMountStatus
	// Grace is the termination grace period that its pod had when it was made,
	// in seconds; PreStop is its hook, and Ports are those that the hook may
	// name. All are for pods that nobody wants any more.
	Grace   int64
	PreStop *corev1.LifecycleHandler
	Ports   []corev1.ContainerPort
	// Resources are those in force, where the runtime tells them.
	Resources *corev1.ResourceRequirements
}
