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
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options configure a node. Zero values of numbers and durations mean the defaults
// in the comments.
type Options struct {
	// Name is the name of the Node, Hostname its address of type Hostname and its
	// label.
	Name, Hostname string

	// Core and Coordination are clients of the groups of Nodes and of Leases, without
	// a rate limit. Both are nil in standalone mode.
	Core, Coordination rest.Interface

	// Register reports whether to create the Node (--register-node).
	Register bool
	// Unschedulable is the opposite of --register-schedulable. Like Labels, Taints and
	// ProviderID it applies when the Node is created.
	Unschedulable bool
	Labels        map[string]string
	Taints        []corev1.Taint
	ProviderID    string
	// ExternalCloud reports that a cloud controller manager completes the Node
	// (--cloud-provider=external).
	ExternalCloud bool
	// ControllerAttachDetach reports whether a controller attaches volumes
	// (--enable-controller-attach-detach).
	ControllerAttachDetach bool
	// LocalVolumes is the directory of volumes of the provisioner svc.dev/local-path;
	// empty if the node has none.
	LocalVolumes string

	// IPs are those of --node-ip: none, one, or one of each family. An unspecified
	// address ("::") selects only the family.
	IPs []net.IP
	// Network finds addresses; the machine's by default.
	Network Network
	// Port is the port of the agent's server; 0 without one.
	Port int32

	// Machine describes the machine.
	Machine Machine
	// MaxPods and PodsPerCore limit the pods of the node; PodsPerCore applies if it is
	// positive.
	MaxPods, PodsPerCore int32
	// Reserved are the resources reserved from allocatable.
	Reserved corev1.ResourceList
	// Version is the agent's.
	Version string

	// Runtime requests the container runtime's status.
	Runtime func(ctx context.Context) (RuntimeStatus, error)
	// SetPodCIDRs configures the runtime with the address ranges of pods, separated
	// by a comma: those of the Node's spec or, in standalone mode, PodCIDRs
	// (--pod-cidr). It is nil if the runtime is configured otherwise.
	SetPodCIDRs func(ctx context.Context, cidrs string) error
	PodCIDRs    string
	// Problems returns further reasons why the node is not ready. It may be nil.
	Problems func() []error
	// Lacks returns what a ready node does without. It may be nil.
	Lacks func() []Lack
	// Pressure returns which resources run out; nil means none.
	Pressure func() Pressure
	// VolumesInUse returns the volumes that a controller must not detach; nil means none.
	VolumesInUse func() []corev1.UniqueVolumeName
	// Devices returns what device plugins offer: all devices and the healthy ones by
	// resource, and resources that the node no longer has. It may be nil.
	Devices func() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName)
	// Unreset reports whether an existing Node may have extended resources of unknown device
	// plugins: all extended resources become 0, and after that Reset is called. Both may be nil.
	Unreset func() bool
	Reset   func() error
	// ShownChanged is called when the addresses or the runtime handlers of [Node.Object] have
	// changed, which statuses of pods show. It must not block. It may be nil.
	ShownChanged func()
	// Features are the features that the node declares, sorted (KEP-5328).
	Features []string
	// Images lists the node's images; nil means none. It is called at most once per minute,
	// unless it fails, by one goroutine at a time. It must bound its time.
	Images func(ctx context.Context) ([]corev1.ContainerImage, error)
	// MaxImages bounds the images in the status, the largest first
	// (--node-status-max-images): 0 for none, -1 for all.
	MaxImages int32

	// UpdateFrequency is how often the status is computed
	// (--node-status-update-frequency, 10 s); ReportFrequency is how often it is
	// written without a change (5 min).
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is the duration of the Lease (40 s).
	LeaseDuration time.Duration

	// Recorder records events about the node. It may be nil.
	Recorder record.EventRecorder
	// Clock is the system clock by default, and Random, which returns a number in [0,
	// 1), math/rand's.
	Clock  clock.WithTicker
	Random func() float64
}

// RuntimeStatus is the container runtime's status.
type RuntimeStatus struct {
	// Name and Version identify the runtime ("containerd", "1.6.20").
	Name, Version string
	Conditions    []*runtimeapi.RuntimeCondition
	Handlers      []*runtimeapi.RuntimeHandler
	// Features is nil if the runtime does not report them.
	Features *runtimeapi.RuntimeFeatures
}

// Pressure reports which resources run out.
type Pressure struct{ Memory, Disk, PID bool }

// Node maintains the Node object and its Lease.
type Node struct {
	o      Options
	change chan struct{}
	// first is the Node as it is created, without its status.
	first *corev1.Node

	// The following fields belong to the goroutine of keepStatus.
	runtime    runtimeHealth
	addresses  resolved
	images     listed
	rebooted   bool
	reported   time.Time
	delay      time.Duration
	wasOff     bool
	registered bool
	podCIDRs   string // that the runtime has been configured with
	// written is the status that was written last, and stored what the API server
	// returned for it: one of an older release lacks some fields.
	written, stored *corev1.NodeStatus

	mu sync.RWMutex
	// api is the Node in the API server, or nil; local is the last computed Node.
	api, local *corev1.Node
	// deleted is the UID of the last Node whose deletion was observed. Responses to
	// earlier requests may still contain it.
	deleted types.UID
	// known reports that the Node has been read, or registered, once.
	known bool
	// writing has what is allocatable by the status whose write has not succeeded yet, or is nil.
	writing corev1.ResourceList
}

// New returns a node. It does nothing before [Node.Run].
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
	for _, ip := range o.IPs {
		if err := usable(ip, o.Network); err != nil && !ip.IsUnspecified() {
			return nil, fmt.Errorf("--node-ip: %s: %w", ip, err)
		}
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
	// Pod admission uses these from the start.
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

// Run maintains the Node and its Lease until ctx is done. In standalone mode it
// only computes the Node.
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

// Changed requests a sync of the status.
func (n *Node) Changed() {
	select {
	case n.change <- struct{}{}:
	default:
	}
}

// Object returns the Node in the API server or, until it is known, the Node to be
// registered. Until a write of its status has succeeded it has what is allocatable by that status:
// the scheduler may send pods for it before the response has arrived, also if that is lost. It must
// not be modified.
func (n *Node) Object() *corev1.Node {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.object()
}

// object is Object for a caller that holds mu.
func (n *Node) object() *corev1.Node {
	if n.api == nil {
		return n.local
	}
	if n.writing == nil {
		return n.api
	}
	node := *n.api
	node.Status.Allocatable = n.writing
	return &node
}

// Known reports whether [Node.Object] has been read from the API server, or
// registered, since the start.
func (n *Node) Known() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known
}

// UID returns the Node's UID. It returns an error if the Node does not exist in
// the API server or is being deleted.
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

// set changes what is known of the Node, by a function that it calls with mu held, and reports a
// change of what pods show.
func (n *Node) set(change func()) {
	n.mu.Lock()
	before := &n.object().Status
	change()
	after := &n.object().Status
	n.mu.Unlock()
	same := apiequality.Semantic.DeepEqual(before.Addresses, after.Addresses) &&
		apiequality.Semantic.DeepEqual(before.RuntimeHandlers, after.RuntimeHandlers)
	if !same && n.o.ShownChanged != nil {
		n.o.ShownChanged()
	}
}

// seen records the Node from the API server, unless a newer one is known.
func (n *Node) seen(node *corev1.Node) {
	node.ManagedFields = nil
	n.set(func() {
		if node.UID == n.deleted {
			return
		}
		if n.api != nil && n.api.UID == node.UID {
			if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, n.api.ResourceVersion); err == nil && order < 0 {
				return
			}
		}
		n.api, n.known = node, true
	})
}

// lost records that the Node with this UID may not exist any more: it is read, or
// registered, again.
func (n *Node) lost(uid types.UID) {
	n.set(func() {
		if n.api != nil && n.api.UID == uid {
			n.api = nil
		}
	})
}

// gone records that the Node with this UID was deleted.
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
	klog.Background().V(2).Info("Recording an event about the node", "node", klog.KRef("", n.o.Name), "reason", reason)
	if n.o.Recorder == nil {
		return
	}
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.o.Name, UID: types.UID(n.o.Name)} // kubectl describe finds them by this UID
	if n.o.Core != nil {
		ref.APIVersion = n.o.Core.APIVersion().String()
	}
	n.o.Recorder.Event(ref, kind, reason, message)
}

// statusEvent records an event about a change of the node's status.
func (n *Node) statusEvent(reason string) {
	n.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", n.o.Name, reason))
}
