package pod

import "time"

// Kind is what an operation does.
type Kind string

// The operations that a machine asks for.
const (
	// SetUp makes what the containers stand on: the pod's directories, cgroups
	// and volumes. It is done once, before the first sandbox, and again after
	// the agent has started anew.
	SetUp Kind = "set up"
	// CreateSandbox creates and starts a sandbox of the attempt Attempt.
	CreateSandbox Kind = "create sandbox"
	// StopSandbox stops the sandbox ID, after its containers.
	StopSandbox Kind = "stop sandbox"
	// RemoveSandbox removes the sandbox ID and its containers from the runtime.
	RemoveSandbox Kind = "remove sandbox"
	// StartContainer pulls the image of the container Name as its policy says,
	// creates the container of the attempt Attempt, starts it, and runs its
	// postStart hook.
	StartContainer Kind = "start container"
	// StopContainer runs the preStop hook of the container ID and then stops
	// it, both within Grace.
	StopContainer Kind = "stop container"
	// PreStop runs the preStop hook of the container ID, within Grace, and
	// leaves it running: a sidecar is told at once that its pod ends, and
	// stopped when its turn comes (KEP-753).
	PreStop Kind = "run preStop hook"
	// RemoveContainer removes the container ID from the runtime.
	RemoveContainer Kind = "remove container"
	// TearDown releases what SetUp made. The logs of containers stay until the
	// pod is released.
	TearDown Kind = "tear down"
	// Cancel does nothing itself: it replaces, and thereby gives up, the
	// operation under way that starts the container Name or, without a name,
	// creates the sandbox.
	Cancel Kind = "cancel"
)

// Operation is something to be done about a pod. Operations of different keys
// run side by side. One with the key of another that is still running replaces
// it: that one is cancelled, and its end, which is reported like any other,
// awaited first.
type Operation struct {
	Kind Kind
	// ID is that of the sandbox or container.
	ID string
	// Name is that of the container in the spec.
	Name    string
	Attempt uint32
	// SandboxID is that in which a container is to start.
	SandboxID string
	// Grace is the time that a container has to stop, its preStop hook
	// included. However little the hook leaves of it, the container has two
	// seconds from its signal to its end.
	Grace time.Duration
	// Hook says whether the preStop hook is to run.
	Hook bool
	// Reason and Message say why a container is stopped. They are those of an
	// event ("Killing"), which is already among the events of the output.
	Reason, Message string
}

// Key tells operations apart that may run side by side.
func (o Operation) Key() string {
	switch o.Kind {
	case StartContainer:
		return "container " + o.Name
	case StopContainer, PreStop, RemoveContainer:
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

// Result is what has become of an operation.
type Result struct {
	// Reason is empty when the operation succeeded. Otherwise it is what the
	// container's status says while it waits ("ErrImagePull",
	// "CreateContainerConfigError", "RunContainerError", "PostStartHookError"),
	// or of any other operation the reason of the event ("FailedMount",
	// "FailedCreatePodSandBox", "FailedKillPod"), which the machine records
	// with Message.
	Reason, Message string
	// Cancelled says that the operation was given up for another one.
	Cancelled bool
}
