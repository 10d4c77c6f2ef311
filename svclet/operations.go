package svclet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
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
	return pod.Result{Reason: reason, Message: runtime.Message(err)}
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

// kinds are the containers of a pod's lists, as metrics name them.
var kinds = map[podspec.List]string{
	podspec.InitContainers:      metrics.InitContainer,
	podspec.Containers:          metrics.Container,
	podspec.EphemeralContainers: metrics.EphemeralContainer,
}

// startContainer does all that is between a container's spec and its running
// process, and runs its postStart hook.
func (o *operations) startContainer(ctx context.Context, p *corev1.Pod, seen pod.Observed, op pod.Operation, pulling *atomic.Int64) pod.Result {
	list, c := podspec.Find(&p.Spec, op.Name)
	if c == nil {
		return failed("CreateContainerConfigError", fmt.Errorf("the pod has no container %q", op.Name))
	}
	started := starting{operations: o, pod: p, container: c, list: list, seen: seen, op: op, pulling: pulling}
	id, result := started.run(ctx)
	o.metrics.ContainerStarted(kinds[list], result.Reason)
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

// minimumGrace is what a container has to stop even where it is to have
// nothing: the runtime needs as much to tell it.
const minimumGrace = 2 * time.Second

// preStop runs the preStop hook of a container, within op.Grace.
func (o *operations) preStop(ctx context.Context, p *corev1.Pod, seen pod.Observed, op pod.Operation) {
	_, c := podspec.Find(&p.Spec, op.Name)
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
