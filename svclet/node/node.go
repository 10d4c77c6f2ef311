package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options say what the node is. Zero values of numbers and durations stand for
// the defaults in their comments.
type Options struct {
	// Name is the Node's, Hostname its address of this type and its label.
	Name, Hostname string

	// Core and Coordination are clients of the groups of Nodes and of Leases,
	// without a rate limit. Both are nil in standalone mode.
	Core, Coordination rest.Interface

	// Register says whether to create the Node (--register-node).
	Register bool
	// Unschedulable is the opposite of --register-schedulable, and counts, as
	// do Labels, Taints and ProviderID, when the Node is created.
	Unschedulable bool
	Labels        map[string]string
	Taints        []corev1.Taint
	ProviderID    string
	// ControllerAttachDetach says that a controller attaches volumes
	// (--enable-controller-attach-detach).
	ControllerAttachDetach bool

	// IPs are those of --node-ip: none, one, or one of each family. Of an
	// unspecified one ("::") only the family counts.
	IPs []net.IP
	// Network answers about addresses; that of the machine when nil.
	Network Network
	// Port is that of the agent's server; 0 without one.
	Port int32

	// Machine is what the machine has.
	Machine Machine
	// MaxPods and PodsPerCore bound the pods of the node; PodsPerCore counts
	// when it is above 0.
	MaxPods, PodsPerCore int32
	// Reserved is what is kept from pods, of each resource.
	Reserved corev1.ResourceList
	// Version is the agent's.
	Version string

	// Runtime asks the container runtime how it is.
	Runtime func(ctx context.Context) (RuntimeStatus, error)
	// Problems are further reasons why the node is not ready; nil for none.
	Problems func() []error
	// Pressure tells which resources run out; nil for never.
	Pressure func() Pressure
	// Images lists the node's images; nil for none. It is asked at most once
	// each minute.
	Images func(ctx context.Context) ([]corev1.ContainerImage, error)
	// MaxImages bounds how many of them are shown, the largest first
	// (--node-status-max-images): 0 for none, -1 for all.
	MaxImages int32

	// UpdateFrequency is how often the status is computed
	// (--node-status-update-frequency, 10 s); ReportFrequency is how often it is
	// written although nothing has changed (5 min).
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is how long the Lease holds without being renewed (40 s).
	LeaseDuration time.Duration

	// Recorder records events about the node; nil for none.
	Recorder record.EventRecorder
	// Clock is the real one when nil, and Random, a number from 0 up to 1, is
	// the library's.
	Clock  clock.WithTicker
	Random func() float64
}

// RuntimeStatus is what the container runtime says of itself.
type RuntimeStatus struct {
	// Name and Version are those of the runtime ("containerd", "1.6.20").
	Name, Version string
	Conditions    []*runtimeapi.RuntimeCondition
	Handlers      []*runtimeapi.RuntimeHandler
	// Features are nil when the runtime does not tell them.
	Features *runtimeapi.RuntimeFeatures
}

// Pressure says which resources run out.
type Pressure struct{ Memory, Disk, PID bool }

// Node is this machine in the API.
type Node struct {
	o      Options
	change chan struct{}
	// first is the Node as it is created, but for its status.
	first *corev1.Node

	// What follows belongs to the goroutine of the status.
	runtime    runtimeHealth
	addresses  resolved
	images     listed
	rebooted   bool
	reported   time.Time
	delay      time.Duration
	wasOff     bool
	registered bool

	mu sync.RWMutex
	// api is the Node as the API has it, nil if it has none; local is what it
	// was last computed to be.
	api, local *corev1.Node
	// deleted is the last Node that was seen to go. Answers to earlier requests
	// may still tell of it.
	deleted types.UID
	// known says that it has been read, or registered, once.
	known bool
}

// New makes a node. It does nothing before [Node.Run].
func New(o Options) (*Node, error) {
	if o.Name == "" {
		return nil, errors.New("the node has no name")
	}
	if (o.Core == nil) != (o.Coordination == nil) {
		return nil, errors.New("a node in the API needs clients of Nodes and of Leases")
	}
	if o.Network == nil {
		o.Network = hostNetwork{}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	fill(&o.UpdateFrequency, 10*time.Second)
	fill(&o.ReportFrequency, 5*time.Minute)
	fill(&o.LeaseDuration, 40*time.Second)
	n := &Node{o: o, change: make(chan struct{}, 1)}
	n.runtime.started = o.Clock.Now()
	n.first = initial(&n.o)
	// Pods are admitted by these from the first moment on.
	n.first.Status.Capacity = capacity(&n.o, nil)
	if err := checkReserved(n.first.Status.Capacity, n.o.Reserved); err != nil {
		return nil, err
	}
	n.first.Status.Allocatable = allocatable(n.first.Status.Capacity, n.o.Reserved)
	n.local = n.first
	return n, nil
}

func fill(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Run keeps the Node and its Lease until ctx is done. In standalone mode it
// only computes what the Node would be.
func (n *Node) Run(ctx context.Context) {
	n.event(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	var all sync.WaitGroup
	if n.o.Core != nil {
		all.Go(func() { n.watch(ctx) })
		all.Go(func() { n.keepLease(ctx) })
	}
	n.keepStatus(ctx)
	all.Wait()
}

// Changed has the status computed now, because something has changed of which
// it tells.
func (n *Node) Changed() {
	select {
	case n.change <- struct{}{}:
	default:
	}
}

// Object is the Node as the API has it, or, until it is known, as it would be
// registered. It must not be changed.
func (n *Node) Object() *corev1.Node {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.api != nil {
		return n.api
	}
	return n.local
}

// Known says whether [Node.Object] has been read from the API, or registered
// there, since the start.
func (n *Node) Known() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known
}

// UID is the Node's in the API. It is an error if the API has no such Node, or
// if that is being deleted.
func (n *Node) UID(context.Context) (types.UID, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	switch {
	case n.api == nil:
		return "", fmt.Errorf("node %s is not registered", n.o.Name)
	case n.api.DeletionTimestamp != nil:
		return "", fmt.Errorf("node %s is being deleted", n.o.Name)
	}
	return n.api.UID, nil
}

// seen notes the Node as the API has it, unless something newer is known.
func (n *Node) seen(node *corev1.Node) {
	node.ManagedFields = nil
	n.mu.Lock()
	defer n.mu.Unlock()
	if node.UID == n.deleted {
		return
	}
	if n.api != nil && n.api.UID == node.UID {
		if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, n.api.ResourceVersion); err == nil && order < 0 {
			return
		}
	}
	n.api, n.known = node, true
}

// lost notes that the Node of this UID may be no more: it is read, or
// registered, anew.
func (n *Node) lost(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.api != nil && n.api.UID == uid {
		n.api = nil
	}
}

// gone notes that the Node of this UID has been deleted.
func (n *Node) gone(uid types.UID) {
	n.lost(uid)
	n.mu.Lock()
	n.deleted = uid
	n.mu.Unlock()
	n.Changed()
}

func (n *Node) current() *corev1.Node {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.api
}

// event records an event about the node.
func (n *Node) event(kind, reason, message string) {
	klog.Background().V(2).Info("Recording an event about the node", "node", n.o.Name, "reason", reason)
	if n.o.Recorder == nil {
		return
	}
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.o.Name}
	if n.o.Core != nil {
		ref.APIVersion = n.o.Core.APIVersion().String()
	}
	n.o.Recorder.Event(ref, kind, reason, message)
}

// statusEvent records that the node is now as reason says.
func (n *Node) statusEvent(reason string) {
	n.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", n.o.Name, reason))
}
