package pod

// Reasons and messages, spelled as kubelet's, which users and their tools know.
const (
	reasonCreating     = "ContainerCreating"
	reasonInitializing = "PodInitializing"
	reasonCrashLoop    = "CrashLoopBackOff"
	reasonPull         = "ErrImagePull"
	reasonPullBackOff  = "ImagePullBackOff"
	reasonConfig       = "CreateContainerConfigError"
	reasonPostStart    = "PostStartHookError"
	reasonUnknown      = "ContainerStatusUnknown"

	reasonRestartingAll  = "RestartingAllContainers"
	messageRestartingAll = "The container is removed because RestartAllContainers in place"

	reasonBackOff         = "BackOff"
	reasonFailed          = "Failed"
	reasonKilling         = "Killing"
	reasonSandboxChanged  = "SandboxChanged"
	reasonResizeStarted   = "ResizeStarted"
	reasonResizeCompleted = "ResizeCompleted"
	reasonDeadline        = "DeadlineExceeded"
	reasonTermination     = "TerminationByKubelet"

	messageSandboxChanged = "Pod sandbox changed, it will be killed and re-created."
	messageDeadline       = "Pod was active on the node longer than the specified deadline"
	messageNotLocated     = "The container could not be located when the pod was terminated"
	messageVanished       = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageInferred       = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

// exitUnknown is the exit code of a container whose exit code is not known.
const exitUnknown = 137
