package svclet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/volume"
)

// starting is the start of one container.
type starting struct {
	*operations
	pod       *corev1.Pod
	container *corev1.Container
	list      podspec.List // that it is in
	seen      pod.Observed
	op        pod.Operation
	pulling   *atomic.Int64 // to which the time of pulls is added
}

// run pulls the image, creates the container and starts it. The result's
// reason is empty on success.
func (s *starting) run(ctx context.Context) (id string, result pod.Result) {
	if s.list == podspec.EphemeralContainers {
		// It came after the pod was set up, and may name objects of its own.
		s.objects.Register(s.pod)
	}
	began, secrets := s.clock.Now(), s.images.PullSecrets(ctx, s.pod, s.objects)
	volumes, reason, err := s.imageVolumes(ctx, secrets)
	if err != nil {
		return "", failed(reason, err)
	}
	ref, reason, err := s.images.Ensure(ctx, s.pod, s.container, secrets)
	s.pulling.Add(int64(s.clock.Since(began)))
	if err != nil {
		return "", failed(reason, err)
	}
	sandbox, _, err := s.sandboxConfig(s.pod, s.sandbox().Attempt)
	if err != nil {
		s.failed(ctx, err)
		return "", failed("CreateContainerConfigError", err)
	}
	config, err := s.config(ctx, ref, volumes)
	if err != nil {
		s.failed(ctx, err)
		return "", failed("CreateContainerConfigError", err)
	}
	// The runtime makes the log's file, not its directory.
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, s.container.Name), 0o755); err != nil {
		s.failed(ctx, err)
		return "", failed("CreateContainerConfigError", err)
	}
	id, err = s.runtime.CreateContainer(ctx, s.op.SandboxID, config, sandbox)
	if err != nil {
		s.failed(ctx, err)
		return "", failed("CreateContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Created", "Container created")
	if err := s.runtime.StartContainer(ctx, id); err != nil {
		s.failed(ctx, err)
		return "", failed("RunContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Started", "Container started")
	if err := s.logs.Link(s.logOf(s.pod, s.container.Name, id, s.op.Attempt)); err != nil {
		klog.FromContext(ctx).Error(err, "Collectors of logs will not find a container's", "pod", logged(s.pod), "container", s.container.Name)
	}
	return id, pod.Result{}
}

// imageVolumes has those of the container's volumes on the node that are
// images, and names them as the runtime does.
func (s *starting) imageVolumes(ctx context.Context, secrets []corev1.Secret) (images map[string]*runtimeapi.ImageSpec, reason string, err error) {
	stand, err := s.stand(s.pod)
	if err != nil {
		return nil, "CreateContainerConfigError", err
	}
	images = map[string]*runtimeapi.ImageSpec{}
	for i := range s.container.VolumeMounts {
		name := s.container.VolumeMounts[i].Name
		source := stand.volumes[name].Image
		if source == nil || images[name] != nil {
			continue
		}
		ref, reason, err := s.images.EnsureVolume(ctx, s.pod, source, secrets)
		if err != nil {
			return nil, reason, err
		}
		images[name] = &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: source.Reference, Annotations: s.pod.Annotations}
	}
	return images, "", nil
}

// failed records the event of a start that failed.
func (s *starting) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // nobody wants it any more
	}
	s.event(s.pod, s.container, corev1.EventTypeWarning, "Failed", "Error: "+failed("", err).Message)
}

// sandbox is the one in which the container starts.
func (s *starting) sandbox() pod.Sandbox {
	for _, sandbox := range s.seen.Sandboxes {
		if sandbox.ID == s.op.SandboxID {
			return sandbox
		}
	}
	return pod.Sandbox{ID: s.op.SandboxID}
}

// config writes the container's configuration, and the files that it names.
// images are the volumes that are images.
func (s *starting) config(ctx context.Context, ref string, images map[string]*runtimeapi.ImageSpec) (*runtimeapi.ContainerConfig, error) {
	stand, err := s.stand(s.pod)
	if err != nil {
		return nil, err
	}
	options, podIPs := s.options(), s.podIPs(s.pod, s.seen)
	in := container.Input{
		Options: options, Objects: s.objects,
		Pod: s.pod, Container: s.container, Attempt: s.op.Attempt, SpecHash: pod.SpecHash(s.container),
		ImageRef: ref, PodIPs: podIPs, HostIPs: s.hostIPs(),
		Volumes: volumes(stand.volumes, images), SupplementalGroups: stand.groups(),
	}
	handler, err := s.handler(ctx, s.pod)
	if err != nil {
		return nil, err
	}
	in.RecursiveReadOnly = recursiveReadOnly(s.handlers(), handler)
	if in.ImageUser, err = s.imageUser(ctx, ref); err != nil {
		return nil, err
	}
	if in.TargetID, err = s.targetID(); err != nil {
		return nil, err
	}
	if in.HostsFile, err = s.hostsFile(options, podIPs); err != nil {
		return nil, err
	}
	if in.TerminationLog, err = s.volumes.TerminationLog(s.pod.UID, s.container.Name); err != nil {
		return nil, err
	}
	in.SubPath = func(mount corev1.VolumeMount, subPath string) (string, error) {
		index := slices.IndexFunc(s.container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mount.MountPath })
		return s.volumes.SubPath(ctx, s.pod, s.container, index, stand.volumes[mount.Name], subPath)
	}
	return container.Config(ctx, in)
}

// volumes are the pod's volumes as configurations take them.
func volumes(mounted map[string]volume.Mounted, images map[string]*runtimeapi.ImageSpec) map[string]container.Volume {
	all := make(map[string]container.Volume, len(mounted))
	for name, v := range mounted {
		all[name] = container.Volume{HostPath: v.HostPath, ReadOnly: v.ReadOnly, SELinuxRelabel: v.Relabel, Image: images[name]}
	}
	return all
}

// imageUser is as whom the image runs.
func (s *starting) imageUser(ctx context.Context, ref string) (container.ImageUser, error) {
	found, err := s.runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref})
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

// targetID is the container into which an ephemeral one looks.
func (s *starting) targetID() (string, error) {
	i := slices.IndexFunc(s.pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == s.container.Name })
	if i < 0 || s.pod.Spec.EphemeralContainers[i].TargetContainerName == "" {
		return "", nil
	}
	target := s.pod.Spec.EphemeralContainers[i].TargetContainerName
	for _, c := range s.seen.Containers {
		if c.Name == target && c.State == pod.Running {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("unable to find target container %v", target)
}

// hostsFile writes the pod's hosts file, unless the container brings its own.
func (s *starting) hostsFile(options container.Options, podIPs []string) (string, error) {
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
	path := s.volumes.HostsFile(s.pod.UID)
	return path, os.WriteFile(path, content, 0o644)
}

// recursiveReadOnly says whether a handler can make mounts read-only with all
// that is below them.
func recursiveReadOnly(handlers []corev1.NodeRuntimeHandler, name string) bool {
	for _, h := range handlers {
		if h.Name == name {
			return h.Features != nil && ptr.Deref(h.Features.RecursiveReadOnlyMounts, false)
		}
	}
	return false
}
