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

// Volume is a volume of the pod.
type Volume struct {
	// HostPath is its directory or file on the host; Device is its block device, if it is
	// one.
	HostPath, Device string
	// ReadOnly makes all mounts of the volume read-only.
	ReadOnly bool
	// SELinuxRelabel makes the runtime label its files for the container.
	SELinuxRelabel bool
	// Image is the image of an image volume, instead of a host path (KEP-4639).
	Image *runtimeapi.ImageSpec
}

// mounts returns the mounts of a container: its volumes, the hosts file and the
// termination message file.
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

// hostsMount returns the mount of the pod's hosts file, or nil if the container
// mounts its own, or the pod has no address for it.
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

// subPath returns the path within a volume: relative, without "..".
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

// recursiveReadOnly reports whether mounts below a mount are read-only too
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

// devices returns the block devices of a container.
func devices(in Input) ([]*runtimeapi.Device, error) {
	var list []*runtimeapi.Device
	for _, device := range in.Container.VolumeDevices {
		volume := in.Volumes[device.Name]
		if volume.Device == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", device.Name, in.Container.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly {
			permissions = "r"
		}
		list = append(list, &runtimeapi.Device{HostPath: volume.Device, ContainerPath: device.DevicePath, Permissions: permissions})
	}
	return list, nil
}
