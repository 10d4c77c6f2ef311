package runtime

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
)

// translateSandbox translates a sandbox of a list. Its addresses are only in its
// status.
func translateSandbox(listed *runtimeapi.PodSandbox) pod.Sandbox {
	return pod.Sandbox{
		ID:        listed.GetId(),
		Attempt:   listed.GetMetadata().GetAttempt(),
		Ready:     listed.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: moment(listed.GetCreatedAt()),
	}
}

// sandboxIPs returns the addresses of a sandbox, the primary one first. If one is
// invalid, none is returned. A sandbox on the host network has none of its own.
func sandboxIPs(status *runtimeapi.PodSandboxStatus) []string {
	network := status.GetNetwork()
	if network.GetIp() == "" {
		return nil
	}
	ips := []string{network.GetIp()}
	for _, additional := range network.GetAdditionalIps() {
		ips = append(ips, additional.GetIp())
	}
	for _, ip := range ips {
		if _, err := netip.ParseAddr(ip); err != nil {
			return nil
		}
	}
	return ips
}

func onHostNetwork(status *runtimeapi.PodSandboxStatus) bool {
	return status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// translateContainer translates a container of a list, and its status.
func translateContainer(listed *runtimeapi.Container, status *runtimeapi.ContainerStatus, runtime string) pod.Container {
	record := ReadContainerRecord(status.GetLabels(), status.GetAnnotations())
	container := pod.Container{
		ID:        status.GetId(),
		Runtime:   runtime,
		Name:      cmp.Or(record.Name, status.GetMetadata().GetName()),
		Attempt:   status.GetMetadata().GetAttempt(),
		SandboxID: listed.GetPodSandboxId(),
		State:     translateState(status.GetState()),
		CreatedAt: moment(status.GetCreatedAt()),
		Image:     status.GetImage().GetImage(),
		// Runtimes before Kubernetes 1.30 report only the reference.
		ImageID:     cmp.Or(status.GetImageId(), status.GetImageRef()),
		SpecHash:    record.SpecHash,
		User:        translateUser(status.GetUser()),
		Mounts:      translateMounts(status.GetMounts()),
		StopSignal:  translateSignal(status.GetStopSignal()),
		Grace:       record.Grace,
		CreatedWith: record.Resources,
		Resources:   translateResources(status.GetResources().GetLinux()),
	}
	if record.PreStop != nil {
		container.PreStop, container.Ports = record.PreStop, record.Ports
	}
	if _, ok := status.GetAnnotations()[RestartCountAnnotation]; ok {
		container.Attempt = record.RestartCount
	}
	if container.State != pod.Created {
		container.StartedAt = moment(status.GetStartedAt())
	}
	if container.State == pod.Exited {
		container.FinishedAt = moment(status.GetFinishedAt())
		container.ExitCode = status.GetExitCode()
		container.Reason = status.GetReason()
		container.Message = status.GetMessage()
	}
	return container
}

func translateState(state runtimeapi.ContainerState) pod.State {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.Exited
	default:
		return pod.Unknown
	}
}

func translateUser(user *runtimeapi.ContainerUser) *corev1.ContainerUser {
	if user == nil {
		return nil
	}
	translated := &corev1.ContainerUser{}
	if linux := user.GetLinux(); linux != nil {
		translated.Linux = &corev1.LinuxContainerUser{
			UID:                linux.GetUid(),
			GID:                linux.GetGid(),
			SupplementalGroups: linux.GetSupplementalGroups(),
		}
	}
	return translated
}

// translateMounts returns the mounts as the runtime made them. The runtime does
// not know the volumes' names, so Name is empty and MountPath identifies the
// mount.
func translateMounts(mounts []*runtimeapi.Mount) []corev1.VolumeMountStatus {
	var translated []corev1.VolumeMountStatus
	for _, mount := range mounts {
		status := corev1.VolumeMountStatus{MountPath: mount.GetContainerPath(), ReadOnly: mount.GetReadonly()}
		if mount.GetReadonly() {
			mode := corev1.RecursiveReadOnlyDisabled
			if mount.GetRecursiveReadOnly() {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		translated = append(translated, status)
	}
	return translated
}

// The minimum of CPU shares, the shares of one CPU, and the default CFS period in
// microseconds: cgroup v1.
const (
	minShares    = 2
	sharesPerCPU = 1024
)

// translateResources returns the resources in force, as far as the runtime reports
// them: the CPU request from the shares, rounded up, and the limits of CPU and
// memory.
func translateResources(linux *runtimeapi.LinuxContainerResources) *corev1.ResourceRequirements {
	var resources corev1.ResourceRequirements
	if shares := linux.GetCpuShares(); shares >= minShares {
		milli := (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
		resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	}
	limits := corev1.ResourceList{}
	if quota, period := linux.GetCpuQuota(), linux.GetCpuPeriod(); quota > 0 && period > 0 {
		limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if memory := linux.GetMemoryLimitInBytes(); memory > 0 {
		limits[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if len(limits) > 0 {
		resources.Limits = limits
	}
	if resources.Requests == nil && resources.Limits == nil {
		return nil
	}
	return &resources
}

// newestFirst sorts by attempt number, and by creation time among equal ones: the clock may
// have been set back between two attempts.
func newestFirst(observed *pod.Observed) {
	slices.SortStableFunc(observed.Sandboxes, func(a, b pod.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(observed.Containers, func(a, b pod.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// moment converts a CRI time, in nanoseconds since 1970; 0 means no time.
func moment(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
