package svclet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/volume"
)

// operations carries out what pods' machines ask for.
type operations struct {
	runtime *runtime.Client
	images  *image.Manager
	volumes *volume.Manager
	objects objects
	cgroups cgroups
	hooks   *probe.Manager
	logs    *logs.Manager
	events  *recorder
	metrics *metrics.Metrics
	clock   clock.PassiveClock
	// options are those of configurations; they change with the node.
	options func() container.Options
	// handlers are what the runtime can do.
	handlers func() []corev1.NodeRuntimeHandler
	hostIPs  func() []string

	mu sync.Mutex
	// stands are what SetUp has made, by pod.
	stands map[types.UID]*stand
}

// cgroups bound what pods use.
type cgroups interface {
	// Create makes the pod's cgroup, or sets anew the limits of one that is
	// there; Parent is its name as the runtime takes it.
	Create(p *corev1.Pod) error
	Parent(p *corev1.Pod) (string, error)
	// Remove ends what is left in a pod's cgroup, and removes it.
	Remove(ctx context.Context, uid types.UID) error
	// Pods are those that have a cgroup.
	Pods() ([]types.UID, error)
	// UpdateClasses divides what the pods of different classes share.
	UpdateClasses(active []*corev1.Pod) error
}

// stand is what the containers of a pod stand on.
type stand struct {
	volumes      map[string]volume.Mounted
	cgroupParent string
	// complaints are what has been told of already, so that it is told once.
	complaints map[string]bool
}

// groups are those that the volumes' files ask for.
func (s *stand) groups() []int64 {
	var groups []int64
	for _, v := range s.volumes {
		if v.Group != nil {
			groups = append(groups, *v.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// failed is the result of an operation that failed.
func failed(reason string, err error) pod.Result {
	message := err.Error()
	var grpc interface{ GRPCStatus() *status.Status }
	if errors.As(err, &grpc) {
		message = grpc.GRPCStatus().Message()
	}
	return pod.Result{Reason: reason, Message: message}
}

// perform implements hands.
func (o *operations) perform(ctx context.Context, w *worker, op pod.Operation) pod.Result {
	p := w.wanted()
	switch op.Kind {
	case pod.SetUp:
		return o.setUp(ctx, p)
	case pod.CreateSandbox:
		return o.createSandbox(ctx, p, op)
	case pod.StartContainer:
		return o.startContainer(ctx, p, w.seen(), op, &w.pulling)
	case pod.PreStop:
		o.preStop(ctx, p, w.seen(), op)
		return pod.Result{}
	case pod.StopContainer:
		return o.stopContainer(ctx, p, w.seen(), op)
	case pod.RemoveContainer:
		return o.removeContainer(ctx, p, op)
	case pod.StopSandbox:
		return asResult("FailedKillPod", o.runtime.StopSandbox(ctx, op.ID))
	case pod.RemoveSandbox:
		return asResult("FailedKillPod", o.runtime.RemoveSandbox(ctx, op.ID))
	case pod.TearDown:
		return o.tearDown(ctx, p)
	case pod.Cancel:
		return pod.Result{}
	default:
		return pod.Result{Reason: "FailedSync", Message: fmt.Sprintf("the operation %q is not known", op.Kind)}
	}
}

func asResult(reason string, err error) pod.Result {
	if err == nil {
		return pod.Result{}
	}
	return failed(reason, err)
}

// look implements hands.
func (o *operations) look(ctx context.Context, p *corev1.Pod) (pod.Observed, error) {
	return o.runtime.Pod(ctx, p.UID)
}

// setUp makes the pod's directories, cgroup and volumes.
func (o *operations) setUp(ctx context.Context, p *corev1.Pod) pod.Result {
	o.objects.Register(p)
	s := &stand{complaints: map[string]bool{}}
	var err error
	if err = o.cgroups.Create(p); err == nil {
		s.cgroupParent, err = o.cgroups.Parent(p)
	}
	if err != nil {
		return failed("FailedCreatePodContainer", fmt.Errorf("unable to ensure pod container exists: %w", err))
	}
	if s.volumes, err = o.volumes.Mount(ctx, p); err != nil {
		return failed("FailedMount", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stands[p.UID] = s
	return pod.Result{}
}

// stand returns what setUp has made for a pod.
func (o *operations) stand(p *corev1.Pod) (*stand, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.stands[p.UID]; s != nil {
		return s, nil
	}
	return nil, errors.New("the pod has not been set up")
}

// sandboxConfig is the configuration of the pod's sandbox of an attempt.
func (o *operations) sandboxConfig(p *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, *stand, error) {
	s, err := o.stand(p)
	if err != nil {
		return nil, nil, err
	}
	config, err := container.Sandbox(container.SandboxInput{
		Options: o.options(), Pod: p, Attempt: attempt,
		CgroupParent: s.cgroupParent, SupplementalGroups: s.groups(),
		Warn: func(reason, message string) { o.complain(p, s, reason, message) },
	})
	return config, s, err
}

// complain records an event about a pod once.
func (o *operations) complain(p *corev1.Pod, s *stand, reason, message string) {
	o.mu.Lock()
	told := s.complaints[message]
	s.complaints[message] = true
	o.mu.Unlock()
	if !told {
		o.events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
	}
}

func (o *operations) createSandbox(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	const reason = "FailedCreatePodSandBox"
	config, _, err := o.sandboxConfig(p, op.Attempt)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	handler, err := o.handler(ctx, p)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to get sandbox runtime: %w", err))
	}
	began := o.clock.Now()
	_, err = o.runtime.RunSandbox(ctx, config, handler)
	o.metrics.SandboxRun(handler, o.clock.Since(began), err)
	return asResult(reason, err)
}

// handler is the runtime's, by the pod's RuntimeClass; empty for the default.
func (o *operations) handler(ctx context.Context, p *corev1.Pod) (string, error) {
	if name := p.Spec.RuntimeClassName; name != nil && *name != "" {
		return o.objects.RuntimeHandler(ctx, *name)
	}
	return "", nil
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

// startContainer does all that is between a container's spec and its running
// process, and runs its postStart hook.
func (o *operations) startContainer(ctx context.Context, p *corev1.Pod, seen pod.Observed, op pod.Operation, pulling *atomic.Int64) pod.Result {
	c, target := findContainer(p, op.Name)
	if c == nil {
		return failed("CreateContainerConfigError", fmt.Errorf("the pod has no container %q", op.Name))
	}
	started := starting{operations: o, pod: p, container: c, target: target, seen: seen, op: op, pulling: pulling}
	id, result := started.run(ctx)
	o.metrics.ContainerStarted(kindOf(p, op.Name), result.Reason)
	if result.Reason != "" {
		return result
	}
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return pod.Result{}
	}
	if err := o.hooks.Hook(ctx, probe.PostStart, p, c, id, o.podIP(p, seen)); err != nil {
		if ctx.Err() != nil {
			// It is the pod that ends, which stops the container in its turn, or
			// the agent, which leaves it alone.
			return failed("PostStartHookError", err)
		}
		o.event(p, c, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
		grace := pod.Seconds(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 0))
		stop := pod.Operation{Kind: pod.StopContainer, ID: id, Name: op.Name, Attempt: op.Attempt, Grace: grace, Hook: grace > 0}
		if stopped := o.stopContainer(ctx, p, seen, stop); stopped.Reason != "" && ctx.Err() == nil {
			klog.FromContext(ctx).Info("A container whose postStart hook failed was not stopped", "pod", logged(p), "container", c.Name, "err", stopped.Message)
		}
		return failed("PostStartHookError", err)
	}
	return pod.Result{}
}

// starting is the start of one container.
type starting struct {
	*operations
	pod       *corev1.Pod
	container *corev1.Container
	target    string // the container that an ephemeral one looks into
	seen      pod.Observed
	op        pod.Operation
	pulling   *atomic.Int64 // to which the time of pulls is added
}

// run pulls the image, creates the container and starts it. The result's
// reason is empty on success.
func (s *starting) run(ctx context.Context) (id string, result pod.Result) {
	if s.isEphemeral() {
		// It came after the pod was set up, and may name objects of its own.
		s.objects.Register(s.pod)
	}
	began, secrets := s.clock.Now(), s.pullSecrets(ctx)
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
		s.failed(err)
		return "", failed("CreateContainerConfigError", err)
	}
	config, err := s.config(ctx, ref, volumes)
	if err != nil {
		s.failed(err)
		return "", failed("CreateContainerConfigError", err)
	}
	// The runtime makes the log's file, not its directory.
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, s.container.Name), 0o755); err != nil {
		s.failed(err)
		return "", failed("CreateContainerConfigError", err)
	}
	id, err = s.runtime.CreateContainer(ctx, s.op.SandboxID, config, sandbox)
	if err != nil {
		s.failed(err)
		return "", failed("CreateContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Created", "Container created")
	if err := s.runtime.StartContainer(ctx, id); err != nil {
		s.failed(err)
		return "", failed("RunContainerError", err)
	}
	s.event(s.pod, s.container, corev1.EventTypeNormal, "Started", "Container started")
	if err := s.logs.Link(s.logOf(s.pod, s.container.Name, id, s.op.Attempt)); err != nil {
		klog.FromContext(ctx).Error(err, "Collectors of logs will not find a container's", "pod", logged(s.pod), "container", s.container.Name)
	}
	return id, pod.Result{}
}

func (s *starting) isEphemeral() bool {
	return kindOf(s.pod, s.container.Name) == metrics.EphemeralContainer
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
func (s *starting) failed(err error) {
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
	if s.target == "" {
		return "", nil
	}
	for _, c := range s.seen.Containers {
		if c.Name == s.target && c.State == pod.Running {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("unable to find target container %v", s.target)
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

// pullSecrets are the pod's pull secrets that are there. Of the others the pod
// is told once: an image may do without.
func (s *starting) pullSecrets(ctx context.Context) []corev1.Secret {
	var secrets []corev1.Secret
	var missing []string
	for _, ref := range s.pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := s.objects.Secret(ctx, s.pod.Namespace, ref.Name)
		if err != nil {
			if !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).V(2).Info("A pull secret cannot be read", "pod", logged(s.pod), "secret", ref.Name, "err", err)
			}
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, *secret)
	}
	if stand, err := s.stand(s.pod); err == nil && len(missing) > 0 {
		s.complain(s.pod, stand, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return secrets
}

// minimumGrace is what a container has to stop even where it is to have
// nothing: the runtime needs as much to tell it.
const minimumGrace = 2 * time.Second

// preStop runs the preStop hook of a container, within op.Grace.
func (o *operations) preStop(ctx context.Context, p *corev1.Pod, seen pod.Observed, op pod.Operation) {
	c, _ := findContainer(p, op.Name)
	if c == nil {
		c = recorded(seen, op.ID)
	}
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil || op.Grace <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, op.Grace)
	defer cancel()
	if err := o.hooks.Hook(ctx, probe.PreStop, p, c, op.ID, o.podIP(p, seen)); err != nil {
		klog.FromContext(ctx).V(2).Info("A preStop hook failed", "pod", logged(p), "container", c.Name, "err", err)
	}
}

// recorded is what a container of a pod that only the runtime knows was made
// of, as far as its preStop hook goes; nil if it had none.
func recorded(seen pod.Observed, id string) *corev1.Container {
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.ID == id && c.PreStop != nil {
			return &corev1.Container{Name: c.Name, Ports: c.Ports, Lifecycle: &corev1.Lifecycle{PreStop: c.PreStop}}
		}
	}
	return nil
}

// stopContainer runs the preStop hook and stops the container, both within
// op.Grace.
func (o *operations) stopContainer(ctx context.Context, p *corev1.Pod, seen pod.Observed, op pod.Operation) pod.Result {
	grace := op.Grace
	if op.Hook {
		began := o.clock.Now()
		o.preStop(ctx, p, seen, op)
		if ctx.Err() != nil {
			return failed("FailedKillPod", ctx.Err())
		}
		grace -= o.clock.Since(began)
	}
	return asResult("FailedKillPod", o.runtime.StopContainer(ctx, op.ID, max(grace, minimumGrace)))
}

func (o *operations) removeContainer(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	if err := o.runtime.RemoveContainer(ctx, op.ID); err != nil {
		return failed("FailedKillPod", err)
	}
	return asResult("FailedKillPod", o.logs.Remove(o.logOf(p, op.Name, op.ID, op.Attempt)))
}

// logOf says where the log of a container is.
func (o *operations) logOf(p *corev1.Pod, name, id string, attempt uint32) logs.Container {
	return logs.Container{
		ID: id, PodNamespace: p.Namespace, PodName: p.Name, Name: name,
		Path: filepath.Join(container.LogDirectory(o.options(), p), container.LogPath(name, attempt)),
	}
}

// tearDown releases what setUp has made.
func (o *operations) tearDown(ctx context.Context, p *corev1.Pod) pod.Result {
	if err := o.volumes.Unmount(ctx, p.UID); err != nil {
		return failed("FailedKillPod", err)
	}
	if err := o.cgroups.Remove(ctx, p.UID); err != nil {
		return failed("FailedKillPod", err)
	}
	o.objects.Unregister(p.UID)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.stands, p.UID)
	return pod.Result{}
}

// refresh brings the volumes of a pod up to date with the API's objects.
func (o *operations) refresh(ctx context.Context, p *corev1.Pod) {
	if _, err := o.stand(p); err != nil {
		return
	}
	if err := o.volumes.Refresh(ctx, p); err != nil {
		o.events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: err.Error()})
	}
}

// podIPs are the pod's addresses: on the host's network those of the node.
func (o *operations) podIPs(p *corev1.Pod, seen pod.Observed) []string {
	if p.Spec.HostNetwork {
		return o.hostIPs()
	}
	for _, sandbox := range seen.Sandboxes {
		if len(sandbox.IPs) > 0 {
			return sandbox.IPs
		}
	}
	return nil
}

// podIP is the primary one.
func (o *operations) podIP(p *corev1.Pod, seen pod.Observed) string {
	if ips := o.podIPs(p, seen); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

func (o *operations) event(p *corev1.Pod, c *corev1.Container, kind, reason, message string) {
	o.events.Event(p, pod.Event{Type: kind, Reason: reason, Message: message, Container: c.Name})
}

// findContainer finds a container of a pod by its name, nil if there is none;
// target is the container into which an ephemeral one looks.
func findContainer(p *corev1.Pod, name string) (c *corev1.Container, target string) {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], ""
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			common := corev1.Container(e.EphemeralContainerCommon)
			return &common, e.TargetContainerName
		}
	}
	return nil, ""
}

// kindOf is which kind of container bears a name.
func kindOf(p *corev1.Pod, name string) string {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return metrics.InitContainer
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return metrics.EphemeralContainer
		}
	}
	return metrics.Container
}
