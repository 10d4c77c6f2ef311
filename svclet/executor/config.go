package executor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/volume"
)

// imageVolumes pulls the images that the container mounts as volumes, and returns
// them by volume name. On error it returns the reason for the container's status.
func (s *start) imageVolumes(ctx context.Context, secrets []corev1.Secret) (images map[string]*runtimeapi.ImageSpec, reason string, err error) {
	mounted, err := s.volumesOf(s.pod.UID)
	if err != nil {
		return nil, "CreateContainerConfigError", err
	}
	images = map[string]*runtimeapi.ImageSpec{}
	for i := range s.container.VolumeMounts {
		name := s.container.VolumeMounts[i].Name
		source := mounted[name].Image
		if source == nil || images[name] != nil {
			continue
		}
		ref, reason, err := s.o.Images.EnsureVolume(ctx, s.pod, source, secrets)
		if err != nil {
			if ctx.Err() == nil {
				s.event(s.pod, s.container, corev1.EventTypeWarning, "Failed", "Error: "+reason)
			}
			return nil, reason, err
		}
		images[name] = &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: source.Reference, Annotations: s.pod.Annotations}
	}
	return images, "", nil
}

// config returns the container's configuration, and writes the files that it
// refers to. handler is that of the pod's runtime class; images are the volumes that are
// images.
func (s *start) config(ctx context.Context, ref, handler string, images map[string]*runtimeapi.ImageSpec) (*runtimeapi.ContainerConfig, error) {
	mounted, err := s.volumesOf(s.pod.UID)
	if err != nil {
		return nil, err
	}
	options, podIPs := s.containerOptions(), s.podIPs(s.pod, s.observed)
	in := container.Input{
		Options: options, Objects: s.o.Objects,
		Pod: s.pod, Container: s.container, Attempt: s.op.Attempt, SpecHash: pod.SpecHash(s.container),
		ImageRef: ref, PodIPs: podIPs, HostIPs: nodeconfig.HostIPs(s.o.Node()),
		Volumes: volumes(mounted, images), SupplementalGroups: supplementalGroups(mounted),
	}
	if s.o.Allocated != nil {
		if in.Allocation, err = s.o.Allocated(ctx, s.pod, s.container); err != nil {
			return nil, err
		}
	}
	if in.UserNamespace, err = s.userNamespace(s.pod, handler); err != nil {
		return nil, err
	}
	in.RecursiveReadOnly = nodeconfig.RecursiveReadOnly(s.o.Node(), handler)
	if in.ImageUser, err = s.imageUser(ctx, ref); err != nil {
		return nil, err
	}
	if in.TargetID, err = s.targetID(); err != nil {
		return nil, err
	}
	if in.HostsFile, err = s.hostsFile(options, podIPs); err != nil {
		return nil, err
	}
	if in.TerminationLog, err = s.o.Volumes.TerminationLog(s.pod.UID, s.container.Name); err != nil {
		return nil, err
	}
	in.SubPath = func(mount corev1.VolumeMount, subPath string) (string, error) {
		index := slices.IndexFunc(s.container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mount.MountPath })
		return s.o.Volumes.SubPath(ctx, s.pod, s.container, index, mounted[mount.Name], subPath)
	}
	return container.Config(ctx, in)
}

// volumes returns the pod's volumes as container configurations take them.
func volumes(mounted map[string]volume.Mounted, images map[string]*runtimeapi.ImageSpec) map[string]container.Volume {
	all := make(map[string]container.Volume, len(mounted))
	for name, v := range mounted {
		all[name] = container.Volume{HostPath: v.HostPath, Device: v.Device, ReadOnly: v.ReadOnly, SELinuxRelabel: v.Relabel, Image: images[name]}
	}
	return all
}

// imageUser returns the user that the image runs as.
func (s *start) imageUser(ctx context.Context, ref string) (container.ImageUser, error) {
	found, err := s.o.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref})
	if err != nil {
		return container.ImageUser{}, err
	}
	if found == nil {
		return container.ImageUser{}, fmt.Errorf("image %q not found", ref)
	}
	user := container.ImageUser{Name: found.Username}
	if found.Uid != nil {
		user.UID = &found.Uid.Value
	}
	return user, nil
}

// targetID returns the ID of the container whose process namespace an ephemeral
// container joins; empty for none.
func (s *start) targetID() (string, error) {
	i := slices.IndexFunc(s.pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == s.container.Name })
	if i < 0 || s.pod.Spec.EphemeralContainers[i].TargetContainerName == "" {
		return "", nil
	}
	target := s.pod.Spec.EphemeralContainers[i].TargetContainerName
	for _, c := range s.observed.Containers {
		if c.Name == target && c.State == pod.Running {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("unable to find target container %v", target)
}

// hostsFile writes the pod's hosts file and returns its path, or an empty path if
// the container mounts its own.
func (s *start) hostsFile(options container.Options, podIPs []string) (string, error) {
	if slices.ContainsFunc(s.container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/hosts" }) {
		return "", nil
	}
	var ofNode []byte
	if s.pod.Spec.HostNetwork {
		var err error
		if ofNode, err = os.ReadFile("/etc/hosts"); err != nil {
			return "", err
		}
	}
	content, err := container.HostsFile(options, s.pod, podIPs, ofNode)
	if err != nil {
		return "", err
	}
	path := s.o.Volumes.HostsFile(s.pod.UID)
	// It is mounted in the running containers of the pod: on a full disk they would be left
	// with an empty one.
	if hasContent(path, content) {
		return path, nil
	}
	return path, os.WriteFile(path, content, 0o644)
}

// hasContent reports whether a file has this content and no more. Containers may have made it of
// any size.
func hasContent(path string, content []byte) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	before, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return err == nil && bytes.Equal(before, content)
}
