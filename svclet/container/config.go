package container

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/container/downward"
	"svc.dev/svc/svclet/expand"
	"svc.dev/svc/svclet/runtime"
)

// Input is all that a container's configuration depends on.
type Input struct {
	Options Options
	// Objects are asked for what the container's variables name. Nil on a node
	// without an API server.
	Objects Objects

	Pod *corev1.Pod
	// Container is one of the pod's: a regular, an init or (by
	// corev1.Container(ephemeral.EphemeralContainerCommon)) an ephemeral one.
	Container *corev1.Container
	Attempt   uint32
	// SpecHash is what the pod's machine compares (pod.SpecHash).
	SpecHash uint64

	// ImageRef is what the runtime calls the image.
	ImageRef string
	// ImageUser is as whom the image runs.
	ImageUser ImageUser

	// PodIPs and HostIPs are the pod's and its node's addresses, those of the
	// node's primary family first.
	PodIPs, HostIPs []string
	// TargetID is the container whose processes an ephemeral container sees.
	TargetID string
	// UserNamespace and SupplementalGroups are the sandbox's; see
	// [SandboxInput].
	UserNamespace      *runtimeapi.UserNamespace
	SupplementalGroups []int64

	// Volumes are the pod's, by name.
	Volumes map[string]Volume
	// SubPath makes a path within a volume safe to mount: it creates a
	// directory if there is nothing, and returns a path on the host that no
	// link can turn elsewhere.
	SubPath func(mount corev1.VolumeMount, subPath string) (hostPath string, err error)
	// RecursiveReadOnly says that the runtime can make mounts below a mount
	// read-only, too.
	RecursiveReadOnly bool
	// HostsFile is the pod's hosts file on the host, TerminationLog the file
	// for the container's termination message; empty for none.
	HostsFile, TerminationLog string
}

// ImageUser is the user that an image names: a number, or else a name. An image
// that names nobody runs as root.
type ImageUser struct {
	UID  *int64
	Name string
}

// Config writes the configuration of a container. Its error is what the
// container's status says while it waits with the reason
// CreateContainerConfigError.
func Config(ctx context.Context, in Input) (*runtimeapi.ContainerConfig, error) {
	if in.ImageUser == (ImageUser{}) {
		in.ImageUser.UID = new(int64)
	}
	environment, err := newEnvironment(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := noDevices(in.Container); err != nil {
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
	annotations, err := runtime.ContainerAnnotations(in.Pod, in.Container, in.Attempt, in.SpecHash, nil)
	if err != nil {
		return nil, err
	}
	known := expand.Lookup(environment.values)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: in.Container.Name, Attempt: in.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: in.Container.Image},
		Command:     expand.Words(in.Container.Command, known),
		Args:        expand.Words(in.Container.Args, known),
		WorkingDir:  in.Container.WorkingDir,
		Envs:        environment.keyValues(),
		Mounts:      mounts,
		Labels:      runtime.ContainerLabels(in.Pod, in.Container),
		Annotations: annotations,
		LogPath:     LogPath(in.Container.Name, in.Attempt),
		Stdin:       in.Container.Stdin,
		StdinOnce:   in.Container.StdinOnce,
		Tty:         in.Container.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(in.Options, in.Pod, in.Container),
			SecurityContext: security,
		},
	}, nil
}

// addresses are the pod's own and its node's. A pod on the node's network has
// the node's.
func (in Input) addresses() downward.Addresses {
	addresses := downward.Addresses{PodIPs: in.PodIPs, HostIPs: in.HostIPs}
	if len(addresses.PodIPs) == 0 && in.Pod.Spec.HostNetwork {
		addresses.PodIPs = addresses.HostIPs
	}
	return addresses
}
