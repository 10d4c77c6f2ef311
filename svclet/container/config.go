package container

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/container/downward"
	"svc.dev/svc/svclet/expand"
	"svc.dev/svc/svclet/runtime"
)

// Input is everything that a container's configuration depends on.
type Input struct {
	Options Options
	// Objects returns the objects that the container's variables refer to. Nil on a
	// node without an API server.
	Objects Objects

	Pod *corev1.Pod
	// Container is a regular, an init or an ephemeral container
	// (corev1.Container(ephemeral.EphemeralContainerCommon)) of the pod.
	Container *corev1.Container
	Attempt   uint32
	// SpecHash is the container's pod.SpecHash.
	SpecHash uint64

	// ImageRef is the runtime's reference to the image.
	ImageRef string
	// ImageUser is the user of the image.
	ImageUser ImageUser

	// PodIPs and HostIPs are the addresses of the pod and of its node, those of the
	// node's primary family first.
	PodIPs, HostIPs []string
	// TargetID is the container whose process namespace an ephemeral container shares.
	TargetID string
	// UserNamespace and SupplementalGroups are those of the sandbox; see
	// [SandboxInput].
	UserNamespace      *runtimeapi.UserNamespace
	SupplementalGroups []int64

	// Volumes are the pod's volumes by name.
	Volumes map[string]Volume
	// SubPath creates the directory at a path in a volume if it does not exist, and
	// returns a path on the host that no symlink can redirect.
	SubPath func(mount corev1.VolumeMount, subPath string) (hostPath string, err error)
	// RecursiveReadOnly reports whether the runtime supports recursive read-only
	// mounts.
	RecursiveReadOnly bool
	// Allocation is what the container has of the node alone.
	Allocation Allocation
	// HostsFile is the path of the pod's hosts file on the host, TerminationLog that
	// of the container's termination message file; empty for none.
	HostsFile, TerminationLog string
}

// Allocation is what a node has allocated to a container.
type Allocation struct {
	// CPUs are the CPUs that it may use, as "0-3,8"; empty for all.
	CPUs string
	// Memory are the NUMA nodes whose memory it uses, as "0,1"; empty for all.
	Memory string
	// Devices and CDIDevices are what it may use of the host's devices; Envs, Mounts and
	// Annotations are what it needs for that.
	Devices     []*runtimeapi.Device
	CDIDevices  []*runtimeapi.CDIDevice
	Envs        []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Annotations map[string]string
}

// ImageUser is the user of an image: a number, or else a name. Without either, the
// image runs as root.
type ImageUser struct {
	UID  *int64
	Name string
}

// Config returns the configuration of a container. Its error is the message of the
// waiting state with the reason CreateContainerConfigError.
func Config(ctx context.Context, in Input) (*runtimeapi.ContainerConfig, error) {
	if in.ImageUser == (ImageUser{}) {
		in.ImageUser.UID = new(int64)
	}
	environment, err := newEnvironment(ctx, in)
	if err != nil {
		return nil, err
	}
	devices, err := devices(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mounts(in, environment.values)
	if err != nil {
		return nil, err
	}
	if err := verifyRunAsNonRoot(in); err != nil {
		return nil, err
	}
	security, err := containerSecurity(in)
	if err != nil {
		return nil, err
	}
	own := in.Allocation
	annotations, err := containerAnnotations(in, mounts)
	if err != nil {
		return nil, err
	}
	known := expand.Lookup(environment.values)
	command, err := expand.Words(in.Container.Command, known)
	if err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	args, err := expand.Words(in.Container.Args, known)
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	resources := Resources(in.Options, in.Pod, in.Container)
	resources.CpusetCpus, resources.CpusetMems = own.CPUs, own.Memory
	return &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: in.Container.Name, Attempt: in.Attempt},
		Image:      &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: in.Container.Image},
		Command:    command,
		Args:       args,
		WorkingDir: in.Container.WorkingDir,
		// The runtime uses the last value of a variable: that of the spec.
		Envs:        append(own.Envs, environment.keyValues()...),
		Mounts:      append(mounts, own.Mounts...),
		Devices:     append(devices, own.Devices...),
		CDIDevices:  own.CDIDevices,
		Labels:      runtime.ContainerLabels(in.Pod, in.Container),
		Annotations: annotations,
		LogPath:     LogPath(in.Container.Name, in.Attempt),
		Stdin:       in.Container.Stdin,
		StdinOnce:   in.Container.StdinOnce,
		Tty:         in.Container.TTY,
		StopSignal:  runtime.StopSignal(in.Container),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       resources,
			SecurityContext: security,
		},
	}, nil
}

// containerAnnotations returns the annotations of a container with mounts.
func containerAnnotations(in Input, mounts []*runtimeapi.Mount) (map[string]string, error) {
	own := map[string]string{}
	maps.Copy(own, in.Allocation.Annotations)
	if in.Options.RecordResources {
		record, err := runtime.ResourcesRecord(in.Container)
		if err != nil {
			return nil, err
		}
		own[runtime.ResourcesAnnotation] = record
	}
	var images []string
	for _, mount := range mounts {
		if mount.Image != nil {
			images = append(images, mount.Image.Image)
		}
	}
	if len(images) > 0 {
		own[runtime.ImagesAnnotation] = strings.Join(images, ",")
	}
	return runtime.ContainerAnnotations(in.Pod, in.Container, in.Attempt, in.SpecHash, own)
}

// addresses returns the addresses of the pod and of its node. A pod on the host
// network has the node's.
func (in Input) addresses() downward.Addresses {
	addresses := downward.Addresses{PodIPs: in.PodIPs, HostIPs: in.HostIPs}
	if len(addresses.PodIPs) == 0 && in.Pod.Spec.HostNetwork {
		addresses.PodIPs = addresses.HostIPs
	}
	return addresses
}
