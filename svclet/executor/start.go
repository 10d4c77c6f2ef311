package executor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/volume"
)

// containerType returns the type of the containers of a list, as metrics name it.
func containerType(list podspec.List) string {
	switch list {
	case podspec.InitContainers:
		return metrics.InitContainer
	case podspec.EphemeralContainers:
		return metrics.EphemeralContainer
	default:
		return metrics.Container
	}
}

// startContainer pulls the image, creates and starts the container, and runs its
// postStart hook. A container whose hook fails is stopped.
func (e *Executor) startContainer(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation, pulled func(time.Duration)) pod.Result {
	list, c := podspec.Find(&p.Spec, op.Name)
	if c == nil {
		return failed("CreateContainerConfigError", fmt.Errorf("the pod has no container %q", op.Name))
	}
	s := start{Executor: e, pod: p, container: c, list: list, observed: observed, op: op, pulled: pulled}
	id, result := s.run(ctx)
	e.o.Metrics.ContainerStarted(containerType(list), result.Reason)
	if result.Reason != "" {
		return result
	}
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return pod.Result{}
	}
	err := e.o.Hooks.Hook(ctx, probe.PostStart, p, c, id, e.PodIP(p, observed))
	if err == nil {
		return pod.Result{}
	}
	if ctx.Err() != nil {
		// The start was cancelled because the pod ends, which stops the container
		// in its turn, or because the agent stops, which leaves it running.
		return failed("PostStartHookError", err)
	}
	e.event(p, c, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
	grace := pod.Seconds(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 0))
	stop := pod.Operation{Kind: pod.StopContainer, ID: id, Name: op.Name, Attempt: op.Attempt, Grace: grace, Hook: grace > 0}
	if stopped := e.stopContainer(ctx, p, observed, stop); stopped.Reason != "" && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Failed to stop container whose postStart hook failed", "pod", klog.KObj(p), "container", c.Name, "err", stopped.Message)
	}
	return failed("PostStartHookError", err)
}

// start is the start of one container.
type start struct {
	*Executor
	pod       *corev1.Pod
	container *corev1.Container
	list      podspec.List // of the spec, that the container is in
	observed  pod.Observed
	op        pod.Operation
	pulled    func(time.Duration)
}

// run pulls the image, creates the container and starts it. The result's reason
// is empty on success.
func (s *start) run(ctx context.Context) (id string, result pod.Result) {
	if s.list == podspec.EphemeralContainers {
		// It was added after the pod was set up, and may refer to objects of its own.
		s.o.Objects.Register(s.pod)
	}
	if _, err := s.resourcesOf(s.pod.UID); err == nil && !s.o.Volumes.Present(s.pod.UID) {
		// Another program has removed the pod's directory.
		if result := s.setUp(ctx, s.pod); result.Reason != "" {
			return "", result
		}
	}
	if err := s.mountMissing(ctx); err != nil {
		if ctx.Err() == nil {
			s.event(s.pod, s.container, corev1.EventTypeWarning, "FailedMount", runtime.Message(err))
		}
		// With this reason the machine tries again at once when an object of the pod changes.
		return "", failed("CreateContainerConfigError", err)
	}
	began, secrets := s.o.Clock.Now(), s.o.Images.PullSecrets(ctx, s.pod, s.o.Objects)
	images, reason, err := s.imageVolumes(ctx, secrets)
	if err != nil {
		return "", failed(reason, err)
	}
	ref, reason, err := s.o.Images.Ensure(ctx, s.pod, s.container, secrets)
	s.pulled(s.o.Clock.Since(began))
	if err != nil {
		return "", failed(reason, err)
	}
	handler, err := s.runtimeHandler(ctx, s.pod)
	if err != nil {
		return "", s.failed(ctx, "CreateContainerConfigError", err)
	}
	sandbox, err := s.sandboxConfig(ctx, s.pod, s.sandbox().Attempt, handler)
	if err != nil {
		return "", s.failed(ctx, "CreateContainerConfigError", err)
	}
	config, err := s.config(ctx, ref, handler, images)
	if err != nil {
		return "", s.failed(ctx, "CreateContainerConfigError", err)
	}
	// The runtime creates the log file, but not its directory.
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, s.container.Name), 0o755); err != nil {
		return "", s.failed(ctx, "CreateContainerConfigError", err)
	}
	if err := s.protect(ctx); err != nil {
		return "", s.failed(ctx, "NetworkPolicyNotReady", err)
	}
	id, err = s.o.Runtime.CreateContainer(ctx, s.op.SandboxID, config, sandbox)
	s.o.Metrics.ImagesMounted(len(images), err)
	if err != nil {
		return "", s.failed(ctx, "CreateContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Created", "Container created")
	if err := s.o.Runtime.StartContainer(ctx, id); err != nil {
		return "", s.failed(ctx, "RunContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Started", "Container started")
	if err := s.o.Logs.Link(Log(s.o.Containers, s.pod, s.container.Name, id, s.op.Attempt)); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to link container log", "pod", klog.KObj(s.pod), "container", s.container.Name)
	}
	return id, pod.Result{}
}

// mountMissing mounts the volumes that no other container uses: those of an ephemeral container,
// which was added after the pod was set up.
func (s *start) mountMissing(ctx context.Context) error {
	if s.list != podspec.EphemeralContainers {
		return nil
	}
	mounted, err := s.volumesOf(s.pod.UID)
	if err != nil {
		return err
	}
	missing := s.missing(mounted)
	if len(missing) == 0 {
		return nil
	}
	more, err := s.o.Volumes.MountMore(ctx, s.pod, missing)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resources[s.pod.UID]; r != nil {
		mounted = maps.Clone(r.volumes)
		maps.Copy(mounted, more)
		r.volumes = mounted
	}
	return err
}

// missing returns the names of the volumes that the container uses and that are not mounted.
func (s *start) missing(mounted map[string]volume.Mounted) sets.Set[string] {
	names := sets.Set[string]{}
	for _, m := range s.container.VolumeMounts {
		names.Insert(m.Name)
	}
	for _, d := range s.container.VolumeDevices {
		names.Insert(d.Name)
	}
	return names.Difference(sets.KeySet(mounted))
}

// protect waits for the rules of the pod's connections, before the sandbox has its first
// container.
func (s *start) protect(ctx context.Context) error {
	if s.o.Network == nil || slices.ContainsFunc(s.observed.Containers, func(c pod.Container) bool { return c.SandboxID == s.op.SandboxID }) {
		return nil
	}
	return s.o.Network.Protect(ctx, s.pod, s.sandbox().IPs)
}

// failed records the event of a start that failed, unless it was cancelled, and
// returns its result.
func (s *start) failed(ctx context.Context, reason string, err error) pod.Result {
	result := failed(reason, err)
	if ctx.Err() == nil {
		s.event(s.pod, s.container, corev1.EventTypeWarning, "Failed", "Error: "+result.Message)
	}
	return result
}

// sandbox returns the sandbox in which the container starts.
func (s *start) sandbox() pod.Sandbox {
	for _, sandbox := range s.observed.Sandboxes {
		if sandbox.ID == s.op.SandboxID {
			return sandbox
		}
	}
	return pod.Sandbox{ID: s.op.SandboxID}
}
