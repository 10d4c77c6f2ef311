package executor

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/userns"
	"svc.dev/svc/svclet/volume"
)

// Runtime is the container runtime.
type Runtime interface {
	Pod(ctx context.Context, uid types.UID) (pod.Observed, error)
	RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	UpdateResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
	UpdateSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) error
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
}

// Objects are the objects of the API that pods refer to.
type Objects interface {
	container.Objects
	image.Secrets
	// Register starts to watch the objects that a pod refers to, Unregister stops
	// that.
	Register(p *corev1.Pod)
	Unregister(uid types.UID)
	// RuntimeHandler returns the handler of a RuntimeClass.
	RuntimeHandler(ctx context.Context, class string) (string, error)
}

// Cgroups are the cgroups of pods.
type Cgroups interface {
	// Create creates the cgroup of a pod, or updates the limits of an existing
	// one. keptMemory reports that one of memory has not been lowered, because the pod uses
	// more or its usage is unknown.
	Create(p *corev1.Pod) (keptMemory bool, err error)
	// MemorySuffices returns an error if the spec of a pod lowers its limit of memory below
	// what it uses, or if that is unknown.
	MemorySuffices(p *corev1.Pod) error
	// Resize sets the limits of the cgroup of a pod. before is the pod with the limits
	// that it has: if it is not nil, limits are raised and not lowered.
	Resize(p, before *corev1.Pod) error
	// Parent returns the cgroup of a pod in the form that the runtime expects.
	Parent(p *corev1.Pod) (string, error)
	// Remove kills the processes in the cgroup of a pod, and removes it.
	Remove(ctx context.Context, uid types.UID) error
}

// Network has the rules of the pods' connections.
type Network interface {
	// Protect returns when the rules of a pod with these addresses are in place.
	Protect(ctx context.Context, p *corev1.Pod, addresses []string) error
	// Release forgets the addresses of a pod whose sandboxes have stopped.
	Release(uid types.UID)
}

// Claims are the resource claims of pods.
type Claims interface {
	// Prepare prepares those of a pod before its sandbox is created.
	Prepare(ctx context.Context, p *corev1.Pod) error
	// Unprepare releases those of a pod whose containers have ended.
	Unprepare(ctx context.Context, uid types.UID) error
}

// Hooks run the lifecycle hooks of containers.
type Hooks interface {
	Hook(ctx context.Context, kind probe.HookKind, p *corev1.Pod, c *corev1.Container, containerID, podIP string) error
}

// Recorder records events about pods.
type Recorder interface {
	Event(p *corev1.Pod, e pod.Event)
}

// Metrics count what is started.
type Metrics interface {
	SandboxRun(handler string, took time.Duration, err error)
	ContainerStarted(kind, reason string)
	// PodRejected records a pod that the node rejects after it has admitted it.
	PodRejected(reason string)
	// ImagesMounted records the creation of a container that mounts images as volumes.
	ImagesMounted(images int, err error)
}

// Options are what an [Executor] works with. All fields are required unless their
// comment says otherwise.
type Options struct {
	Runtime Runtime
	Images  *image.Manager
	Volumes *volume.Manager
	Logs    *logs.Manager
	Objects Objects
	Cgroups Cgroups
	Hooks   Hooks
	Events  Recorder
	Metrics Metrics
	Clock   clock.PassiveClock
	// Network is nil if connections of pods are not filtered.
	Network Network
	// Node returns the Node as it is now. Configurations of containers show its
	// addresses and its allocatable resources.
	Node func() *corev1.Node
	// Allocated returns what a container of a pod that is about to start has of the node
	// alone; nil if there is no such thing.
	Allocated func(ctx context.Context, p *corev1.Pod, c *corev1.Container) (container.Allocation, error)
	// Claims prepare the resource claims of pods; nil if no pod may have one.
	Claims Claims
	// Users give pods with hostUsers: false the users of their user namespace; nil if no
	// pod gets one.
	Users *userns.Allocator
	// ClusterDNS returns the name servers of the cluster for pods that use them, and an
	// error while they are not known; nil if they are those of Containers.
	ClusterDNS func(context.Context) ([]string, error)
	// Containers are the options of configurations that do not change with the
	// Node.
	Containers container.Options
}

// Executor carries out the operations of all pods.
type Executor struct {
	o Options

	mu sync.Mutex
	// resources are what SetUp has made, by pod.
	resources map[types.UID]*resources
}

// New returns an executor. It has no goroutine of its own.
func New(o Options) *Executor { return &Executor{o: o, resources: map[types.UID]*resources{}} }

// Perform carries out an operation for a pod, of which observed is the newest
// observation. It returns when the operation has ended, or soon after ctx is done.
// pulled is called with the time that pulls of images have taken.
func (e *Executor) Perform(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation, pulled func(time.Duration)) pod.Result {
	switch op.Kind {
	case pod.SetUp:
		result := e.setUp(ctx, p)
		if result.Rejected && ctx.Err() == nil {
			e.o.Metrics.PodRejected(result.Reason)
		}
		return result
	case pod.CreateSandbox:
		return e.createSandbox(ctx, p, op)
	case pod.StartContainer:
		return e.startContainer(ctx, p, observed, op, pulled)
	case pod.PreStop:
		e.preStop(ctx, p, observed, op)
		return pod.Result{}
	case pod.StopContainer:
		return e.stopContainer(ctx, p, observed, op)
	case pod.ResizeContainer:
		return e.resizeContainer(ctx, p, observed, op)
	case pod.ResizePod:
		return e.resizePod(ctx, p, observed, op)
	case pod.RemoveContainer:
		return e.removeContainer(ctx, p, op)
	case pod.StopSandbox:
		return e.stopSandbox(ctx, p, observed, op)
	case pod.RemoveSandbox:
		return asResult("FailedKillPod", e.o.Runtime.RemoveSandbox(ctx, op.ID))
	case pod.TearDown:
		return e.tearDown(ctx, p)
	case pod.Cancel:
		return pod.Result{}
	default:
		return pod.Result{Reason: "FailedSync", Message: fmt.Sprintf("unsupported operation %q", op.Kind)}
	}
}

// Observe returns what the runtime holds of a pod now.
func (e *Executor) Observe(ctx context.Context, uid types.UID) (pod.Observed, error) {
	return e.o.Runtime.Pod(ctx, uid)
}

// PodIP returns the primary IP address of a pod, which on the host's network is
// that of the node; empty if it has none.
func (e *Executor) PodIP(p *corev1.Pod, observed pod.Observed) string {
	if ips := e.podIPs(p, observed); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

func (e *Executor) podIPs(p *corev1.Pod, observed pod.Observed) []string {
	if p.Spec.HostNetwork {
		return nodeconfig.HostIPs(e.o.Node())
	}
	for _, sandbox := range observed.Sandboxes {
		if len(sandbox.IPs) > 0 {
			return sandbox.IPs
		}
	}
	return nil
}

// Log returns where the log of an attempt of a container is, by the options of its
// configuration.
func Log(o container.Options, p *corev1.Pod, name, id string, attempt uint32) logs.Container {
	return logs.Container{
		ID: id, PodNamespace: p.Namespace, PodName: p.Name, Name: name,
		Path: filepath.Join(container.LogDirectory(o, p), container.LogPath(name, attempt)),
	}
}

// containerOptions returns the options of configurations, with what they show of
// the Node.
func (e *Executor) containerOptions() container.Options {
	o, node := e.o.Containers, e.o.Node()
	o.Allocatable, o.NodeIPs = node.Status.Allocatable, nil
	for _, ip := range nodeconfig.HostIPs(node) {
		if parsed, err := netip.ParseAddr(ip); err == nil {
			o.NodeIPs = append(o.NodeIPs, parsed)
		}
	}
	return o
}

func (e *Executor) event(p *corev1.Pod, c *corev1.Container, kind, reason, message string) {
	e.o.Events.Event(p, pod.Event{Type: kind, Reason: reason, Message: message, Container: c.Name})
}

// failed returns the result of an operation that failed.
func failed(reason string, err error) pod.Result {
	return pod.Result{Reason: reason, Message: runtime.Message(err)}
}

func asResult(reason string, err error) pod.Result {
	if err == nil {
		return pod.Result{}
	}
	return failed(reason, err)
}
