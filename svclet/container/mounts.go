package container

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/expand"
)

// Volume is where a pod's volume is.
type Volume struct {
	// HostPath is its directory, or file, on the host.
	HostPath string
	// ReadOnly volumes are never mounted writable.
	ReadOnly bool
	// SELinuxRelabel has the runtime label its files for the container.
	SELinuxRelabel bool
	// Image is the image that the volume is, in the place of a path on the
	// host (KEP-4639).
	Image *runtimeapi.ImageSpec
}

// mounts are a container's volumes, its hosts file and its termination message.
func mounts(in Input, environment map[string]string) ([]*runtimeapi.Mount, error) {
	var list []*runtimeapi.Mount
	for i := range in.Container.VolumeMounts {
		mount, err := volumeMount(in, in.Container.VolumeMounts[i], environment)
		if err != nil {
			return nil, err
		}
		list = append(list, mount)
	}
	if hosts := hostsMount(in); hosts != nil {
		list = append(list, hosts)
	}
	if in.TerminationLog != "" && in.Container.TerminationMessagePath != "" {
		list = append(list, &runtimeapi.Mount{
			HostPath:       in.TerminationLog,
			ContainerPath:  absolute(in.Container.TerminationMessagePath),
			SelinuxRelabel: in.Options.Host.SELinux,
		})
	}
	if in.UserNamespace != nil && in.Pod.Spec.HostUsers != nil && !*in.Pod.Spec.HostUsers {
		for _, mount := range list {
			mount.UidMappings, mount.GidMappings = in.UserNamespace.Uids, in.UserNamespace.Gids
		}
	}
	return list, nil
}

// hostsMount is the pod's hosts file, unless the container mounts one of its
// own, or the pod has no address to be named in it.
func hostsMount(in Input) *runtimeapi.Mount {
	if in.HostsFile == "" || len(in.PodIPs) == 0 && !in.Pod.Spec.HostNetwork {
		return nil
	}
	for i := range in.Container.VolumeMounts {
		if in.Container.VolumeMounts[i].MountPath == hostsPath {
			return nil
		}
	}
	return &runtimeapi.Mount{
		HostPath: in.HostsFile, ContainerPath: hostsPath, SelinuxRelabel: in.Options.Host.SELinux,
	}
}

func volumeMount(in Input, mount corev1.VolumeMount, environment map[string]string) (*runtimeapi.Mount, error) {
	volume, mounted := in.Volumes[mount.Name]
	if !mounted || volume.HostPath == "" && volume.Image == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", mount.Name, in.Container.Name)
	}
	subPath, err := subPath(mount, environment)
	if err != nil {
		return nil, err
	}
	propagation, err := propagation(mount.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(mount, in.RecursiveReadOnly)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	result := &runtimeapi.Mount{
		ContainerPath:     absolute(mount.MountPath),
		Readonly:          mount.ReadOnly || volume.ReadOnly,
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		SelinuxRelabel:    volume.SELinuxRelabel && in.Options.Host.SELinux,
	}
	switch {
	case volume.Image != nil:
		result.Image, result.ImageSubPath = volume.Image, subPath
	case subPath == "":
		result.HostPath = volume.HostPath
	case in.SubPath == nil:
		return nil, fmt.Errorf("volume mount %q of container %q: subPath is not supported here", mount.Name, in.Container.Name)
	default:
		if result.HostPath, err = in.SubPath(mount, subPath); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// subPath is the path within a volume that a mount names: a relative one that
// never steps back.
func subPath(mount corev1.VolumeMount, environment map[string]string) (string, error) {
	within := mount.SubPath
	if mount.SubPathExpr != "" {
		var err error
		if within, err = expand.Strictly(mount.SubPathExpr, environment); err != nil {
			return "", err
		}
	}
	if path.IsAbs(within) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", within)
	}
	if slices.Contains(strings.Split(within, "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", within)
	}
	return within, nil
}

func absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return "/" + p
}

func propagation(mode *corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	default:
		return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
	}
}

// recursiveReadOnly says whether mounts below a mount are read-only, too
// (KEP-3857).
func recursiveReadOnly(mount corev1.VolumeMount, possible bool) (bool, error) {
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !mount.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", mount.Name)
	}
	if p := mount.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", mount.Name, *p)
	}
	switch *mount.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyIfPossible:
		return possible, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !possible {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", mount.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *mount.RecursiveReadOnly)
	}
}

// noDevices refuses volumes that are to be devices: the agent has none.
func noDevices(container *corev1.Container) error {
	if len(container.VolumeDevices) == 0 {
		return nil
	}
	return fmt.Errorf("cannot find volume %q to pass into container %q: block volumes are not supported",
		container.VolumeDevices[0].Name, container.Name)
}
