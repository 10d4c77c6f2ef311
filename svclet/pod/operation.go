package pod

import "time"

// Kind is what an operation does.
type Kind string

// The operations that a machine requests.
const (
	// SetUp creates the pod's directories, cgroups and volumes. It runs once, before
	// the first sandbox, and again after a restart of the agent.
	SetUp Kind = "set up"
	// CreateSandbox creates and starts a sandbox with the number Attempt.
	CreateSandbox Kind = "create sandbox"
	// StopSandbox stops the sandbox ID, after its containers.
	StopSandbox Kind = "stop sandbox"
	// RemoveSandbox removes the sandbox ID and its containers from the runtime.
	RemoveSandbox Kind = "remove sandbox"
	// StartContainer pulls the image of the container Name according to its pull
	// policy, creates the container with the number Attempt, starts it, and runs its
	// postStart hook.
	StartContainer Kind = "start container"
	// StopContainer runs the preStop hook of the container ID and then stops it, both
	// within Grace.
	StopContainer Kind = "stop container"
	// PreStop runs the preStop hook of the container ID, within Grace, and leaves the
	// container running: a sidecar's hook runs as soon as its pod terminates, while
	// the sidecar itself is stopped after the containers that depend on it (KEP-753).
	PreStop Kind = "run preStop hook"
	// ResizeContainer sets the CPU and memory of the running container ID to those of
	// the spec.
	ResizeContainer Kind = "resize container"
	// ResizePod sets the limits of the pod's cgroup to those of the spec; with Grow it
	// raises those that become larger, and lowers none.
	ResizePod Kind = "resize pod"
	// RemoveContainer removes the container ID from the runtime and, unless KeepLog, its log.
	RemoveContainer Kind = "remove container"
	// TearDown releases what SetUp created. Container logs stay until the pod is
	// released.
	TearDown Kind = "tear down"
	// Cancel does nothing itself. It replaces, and thereby cancels, the operation in
	// flight that starts the container Name or, without a name, that creates the
	// sandbox.
	Cancel Kind = "cancel"
)

// Operation is an operation on the runtime, the volumes or the images of a pod.
// Operations with different keys run in parallel. An operation with the key of
// another one in flight replaces it: the executor cancels the other one and waits
// for its end, whose result is reported as any other.
type Operation struct {
	Kind Kind
	// ID is the ID of the sandbox or container.
	ID string
	// Name is the name of the container in the spec.
	Name    string
	Attempt uint32
	// SandboxID is the sandbox in which a container is to start.
	SandboxID string
	// Grace is the time that a container has to stop, including its preStop hook. A
	// container always has at least two seconds between the signal and the kill, even
	// if the hook used up all of Grace.
	Grace time.Duration
	// Kill is about StopContainer: the container is killed at once, and has no Grace.
	Kill bool
	// Grow is about ResizePod.
	Grow bool
	// KeepLog is about RemoveContainer.
	KeepLog bool
	// Hook reports whether the preStop hook is to run.
	Hook bool
	// Reason and Message say why a container is stopped. The machine has already
	// recorded them in an event ("Killing").
	Reason, Message string
}

// Key returns the operation's key: operations with different keys may run in
// parallel.
func (o Operation) Key() string {
	switch o.Kind {
	case StartContainer:
		return "container " + o.Name
	case StopContainer, PreStop, RemoveContainer, ResizeContainer:
		return "container " + o.ID
	case Cancel:
		if o.Name == "" {
			return "sandbox"
		}
		return "container " + o.Name
	case CreateSandbox:
		return "sandbox"
	case StopSandbox, RemoveSandbox:
		return "sandbox " + o.ID
	default:
		return "pod"
	}
}

// Result is the result of an operation.
type Result struct {
	// Reason is empty if the operation succeeded. Otherwise, for the start of a
	// container, it is the reason of the waiting state in its status ("ErrImagePull",
	// "CreateContainerConfigError", "RunContainerError", "PostStartHookError"), and
	// for any other operation the reason of the event ("FailedMount",
	// "FailedCreatePodSandBox", "FailedKillPod") that the machine records with
	// Message.
	Reason, Message string
	// Rejected is about SetUp: the operation has failed, and the node has no room for the pod,
	// which it rejects.
	Rejected bool
	// KeptMemory is about SetUp: the pod's cgroup has kept a limit of memory above that of the
	// spec, because the pod uses more or its usage is unknown.
	KeptMemory bool
	// Cancelled reports whether the operation was cancelled for one that replaces it.
	Cancelled bool
}
