package node

import (
	"context"
	"errors"
	"net"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/apifake"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fixture is a node with a fake API server.
type fixture struct {
	*Node
	t      *testing.T
	server *apifake.Server
	events *record.FakeRecorder
	// stop ends Run, and waits for its end.
	stop func()

	lock    sync.Mutex
	runtime RuntimeStatus
	asked   int
}

func start(t *testing.T, server *apifake.Server, change ...func(*Options)) *fixture {
	r := &fixture{t: t, server: server, events: record.NewFakeRecorder(1000), runtime: status(true, true)}
	o := Options{
		Name: "n", Hostname: "host", Register: true, ControllerAttachDetach: true,
		Core: server.Core(t), Coordination: server.Client(t, coordinationv1.SchemeGroupVersion),
		Labels: map[string]string{"zone": "z"}, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, ProviderID: "p://n",
		Network: network{standard: "10.0.0.1"}, Machine: Machine{CPUs: 1, Memory: 1 << 30, Storage: 1, BootID: "b"}, MaxPods: 110, Port: 10250,
		Version: "v1.36.0", Recorder: r.events, UpdateFrequency: time.Hour, LeaseDuration: time.Hour,
		Runtime: func(context.Context) (RuntimeStatus, error) {
			r.lock.Lock()
			defer r.lock.Unlock()
			r.asked++
			return r.runtime, nil
		},
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if r.Node, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

func (r *fixture) set(s RuntimeStatus) {
	r.lock.Lock()
	r.runtime = s
	r.lock.Unlock()
	r.Changed()
}

func (r *fixture) await(what string, is func() bool) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		r.t.Fatalf("%s: not so; requests: %v", what, r.server.Requests())
	}
}

func (r *fixture) awaitReady(want corev1.ConditionStatus) *corev1.Node {
	r.t.Helper()
	var node *corev1.Node
	r.await("ready is "+string(want), func() bool {
		if node = r.server.Node("n"); node == nil {
			return false
		}
		c := condition(node.Status.Conditions, corev1.NodeReady)
		return c != nil && c.Status == want
	})
	return node
}

// recorded returns the pending events.
func (r *fixture) recorded() (all []string) {
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestANodeIsRegisteredReady(t *testing.T) {
	r := start(t, apifake.New(t))
	node := r.awaitReady(corev1.ConditionTrue)
	if l := node.Labels; l["kubernetes.io/hostname"] != "host" || l["kubernetes.io/os"] == "" || l["beta.kubernetes.io/arch"] == "" || l["zone"] != "z" {
		t.Errorf("labels %v", l)
	}
	if node.Spec.ProviderID != "p://n" || len(node.Spec.Taints) != 1 || node.Annotations[attachAnnotation] != "true" {
		t.Errorf("spec %v, annotations %v", node.Spec, node.Annotations)
	}
	if s := node.Status; s.DaemonEndpoints.KubeletEndpoint.Port != 10250 || s.NodeInfo.KubeletVersion != "v1.36.0" || s.Addresses[0].Address != "10.0.0.1" {
		t.Errorf("status %v", s)
	}
	r.await("it is known", r.Known)
	r.await("the lease is held", func() bool {
		l := r.server.Lease("n")
		return l != nil && *l.Spec.HolderIdentity == "n" && *l.Spec.LeaseDurationSeconds == 3600
	})
	events := r.recorded()
	for _, want := range []string{"Normal Starting Starting kubelet.", "Normal NodeHasSufficientMemory Node n status is now: NodeHasSufficientMemory"} {
		if !slices.Contains(events, want) {
			t.Errorf("no event %q: %q", want, events)
		}
	}
	if uid, err := r.UID(t.Context()); err != nil || uid != node.UID || !r.Known() {
		t.Errorf("UID %s, %v", uid, err)
	}
}

func TestANodeBecomesReadyWithoutWaiting(t *testing.T) {
	r := start(t, apifake.New(t), func(o *Options) { o.UpdateFrequency = 10 * time.Second })
	r.set(status(true, false))
	r.awaitReady(corev1.ConditionFalse)
	r.lock.Lock()
	r.runtime = status(true, true)
	r.lock.Unlock()
	r.awaitReady(corev1.ConditionTrue)
	r.set(status(true, false))
	r.awaitReady(corev1.ConditionFalse)
	events := strings.Join(r.recorded(), "\n")
	if !strings.Contains(events, "NodeReady") || !strings.Contains(events, "NodeNotReady") {
		t.Errorf("events: %s", events)
	}
}

func TestAnExistingNodeIsAdopted(t *testing.T) {
	server := apifake.New(t)
	server.Put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"mine": "1", "kubernetes.io/hostname": "old"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.1.0.0/24", Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "before"},
			Capacity:   corev1.ResourceList{"example.com/gpu": capacityOne()},
			Conditions: []corev1.NodeCondition{{Type: "NetworkUnavailable", Status: corev1.ConditionFalse}},
		},
	})
	r := start(t, server, func(o *Options) { o.Labels = map[string]string{"new": "1"} })
	node := r.awaitReady(corev1.ConditionTrue)
	if l := node.Labels; l["mine"] != "1" || l["kubernetes.io/hostname"] != "host" || l["new"] != "" {
		t.Errorf("labels %v", l)
	}
	if node.Spec.PodCIDR == "" || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "theirs" || node.Annotations[attachAnnotation] != "true" {
		t.Errorf("spec %v", node.Spec)
	}
	if node.Status.Capacity["example.com/gpu"] != capacityOne() || condition(node.Status.Conditions, "NetworkUnavailable") == nil {
		t.Errorf("what others have written is gone: %v", node.Status)
	}
	r.await("the reboot is logged", func() bool {
		return strings.Contains(strings.Join(r.recorded(), "\n"), "Warning Rebooted Node n has been rebooted, boot id: b")
	})
}

func TestTheExtendedResourcesOfANodeAreResetIfTheirPluginsAreUnknown(t *testing.T) {
	const gpu, own = "example.com/gpu", "example.com/own"
	server := apifake.New(t)
	existing := corev1.ResourceList{gpu: capacityOne(), own: capacityOne()}
	server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: existing, Allocatable: existing}})
	var reset atomic.Bool
	r := start(t, server, func(o *Options) {
		o.Unreset = func() bool { return !reset.Load() }
		o.Reset = func() error {
			if q := server.Node("n").Status.Allocatable[gpu]; !q.IsZero() {
				t.Errorf("recorded while the Node has %s", &q)
			}
			reset.Store(true)
			return nil
		}
		o.Devices = func() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
			return corev1.ResourceList{own: capacityOne()}, corev1.ResourceList{own: capacityOne()}, nil
		}
	})
	r.await("it is reset", reset.Load)
	has := func(name corev1.ResourceName, want int64) func() bool {
		return func() bool {
			s := server.Node("n").Status
			capacity, known := s.Capacity[name]
			return known && capacity.Value() == want && s.Allocatable.Name(name, resource.DecimalSI).Value() == want
		}
	}
	r.await("the plugin may be gone", has(gpu, 0))
	r.await("this plugin has registered", has(own, 1))
	node := server.Node("n")
	node.Status.Capacity[gpu] = capacityOne()
	server.Put(node)
	r.await("the watch has shown what others set", func() bool { q := r.Object().Status.Capacity[gpu]; return q.Value() == 1 })
	r.Changed()
	r.await("it is kept", has(gpu, 1))
}

func TestAResourceIsAllocatableForTheAgentBeforeTheAPIServerShowsIt(t *testing.T) {
	const gpu = "example.com/gpu"
	server := apifake.New(t)
	var offered atomic.Bool
	r := start(t, server, func(o *Options) {
		o.Devices = func() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
			if !offered.Load() {
				return nil, nil, nil
			}
			return corev1.ResourceList{gpu: capacityOne()}, corev1.ResourceList{gpu: capacityOne()}, nil
		}
	})
	r.awaitReady(corev1.ConditionTrue)
	r.await("the watch has shown it", r.Known)
	allocatable, answer := make(chan int64), make(chan error)
	server.Fail(func(request apifake.Request) error {
		if request.Subresource != "status" {
			return nil
		}
		q := r.Object().Status.Allocatable[gpu]
		allocatable <- q.Value()
		return <-answer
	})
	offered.Store(true)
	r.Changed()
	// The response to the first write is lost: nothing changes until the next one.
	for _, err := range []error{apifake.ErrDrop, nil} {
		for began := false; !began; goruntime.Gosched() {
			select {
			case got := <-allocatable:
				if began = true; got != 1 {
					t.Errorf("the agent has %d while the API server is about to show 1", got)
				}
			default:
				if q := r.Object().Status.Allocatable[gpu]; err == nil && q.Value() != 1 {
					t.Fatal("the agent does not have it when the response is lost")
				}
			}
		}
		answer <- err
	}
	r.await("it is shown", func() bool { q := server.Node("n").Status.Allocatable[gpu]; return q.Value() == 1 })
}

func TestWhatOthersWriteIsShownAfterTheResponseToAWriteIsLost(t *testing.T) {
	const gpu, own = "example.com/gpu", "example.com/own"
	server := apifake.New(t)
	var offered, tried, shown atomic.Bool
	r := start(t, server, func(o *Options) {
		o.Devices = func() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
			if !offered.Load() {
				return nil, nil, nil
			}
			return corev1.ResourceList{own: capacityOne()}, corev1.ResourceList{own: capacityOne()}, nil
		}
	})
	r.awaitReady(corev1.ConditionTrue)
	r.await("the watch has shown it", r.Known)
	stored := server.Node("n")
	stored.Status.Capacity[own], stored.Status.Allocatable[own] = capacityOne(), capacityOne()
	server.Fail(func(request apifake.Request) error {
		if request.Subresource != "status" || shown.Load() {
			return nil
		}
		tried.Store(true)
		return apifake.ErrDrop
	})
	offered.Store(true)
	r.Changed()
	r.await("the response is lost", tried.Load)
	server.Put(stored) // by the write whose response was lost
	r.await("the watch has shown it", func() bool { q := r.current().Status.Allocatable[own]; return q.Value() == 1 })
	shown.Store(true)
	r.Changed()
	node := server.Node("n")
	node.Status.Capacity[gpu], node.Status.Allocatable[gpu] = capacityOne(), capacityOne()
	server.Put(node)
	r.await("what others set is shown", func() bool { q := r.Object().Status.Allocatable[gpu]; return q.Value() == 1 })
}

func TestANodeThatTheWatchHasShownIsAdopted(t *testing.T) {
	server := apifake.New(t)
	server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"kubernetes.io/hostname": "old"}}})
	var shown atomic.Bool
	server.Fail(func(req apifake.Request) error {
		if req.Resource == "nodes" && req.Verb == "create" && !shown.Load() {
			return apierrors.NewServiceUnavailable("not yet")
		}
		return nil
	})
	r := start(t, server)
	r.await("the watch has shown it", r.Known)
	shown.Store(true)
	if l := r.awaitReady(corev1.ConditionTrue).Labels; l["kubernetes.io/hostname"] != "host" {
		t.Errorf("labels %v", l)
	}
}

func TestAnExternalCloudCompletesTheNode(t *testing.T) {
	server := apifake.New(t)
	r := start(t, server, func(o *Options) { o.ExternalCloud, o.IPs = true, []net.IP{net.IPv4zero} })
	node := r.awaitReady(corev1.ConditionTrue)
	uninitialized := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	if !slices.Contains(node.Spec.Taints, uninitialized) || node.Status.Addresses[0].Address != "10.0.0.1" {
		t.Errorf("spec %v, annotations %v, addresses %v", node.Spec, node.Annotations, node.Status.Addresses)
	}
	if given := annotations(&Options{ExternalCloud: true, IPs: []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")}}); given[addressAnnotation] != "10.0.0.1,fd00::1" {
		t.Errorf("annotations %v", given)
	}
	written := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}}}}
	r.stop() // only the goroutine of Run may describe the node
	if after := r.describe(t.Context(), written); !slices.Equal(after.Status.Addresses, written.Status.Addresses) {
		t.Errorf("the controller's addresses have become %v", after.Status.Addresses)
	}
}

func TestAnAddressOfAnotherMachineIsRefused(t *testing.T) {
	for ip, want := range map[string]string{"192.0.2.77": "not found in the host's network interfaces", "127.0.0.1": "can't be loopback address"} {
		_, err := New(Options{Name: "n", IPs: []net.IP{net.ParseIP(ip)}})
		if err == nil || err.Error() != "--node-ip: "+ip+": "+want {
			t.Errorf("%s: %v", ip, err)
		}
	}
}

func TestADeletedNodeIsRegisteredAgain(t *testing.T) {
	r := start(t, apifake.New(t))
	node := r.awaitReady(corev1.ConditionTrue)
	r.await("it is known", r.Known)
	r.server.Remove(node)
	r.await("it is there again", func() bool { n := r.server.Node("n"); return n != nil && n.UID != node.UID })
	if again := r.awaitReady(corev1.ConditionTrue); len(again.Spec.Taints) != 1 {
		t.Errorf("spec %v", again.Spec)
	}
}

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	r := start(t, apifake.New(t))
	r.awaitReady(corev1.ConditionTrue)
	r.await("the lease is there", func() bool { return r.server.Lease("n") != nil })
	r.await("it is known", r.Known)
	r.server.Requests()
	for range 3 {
		r.Changed()
		r.await("the change was handled", func() bool { return len(r.change) == 0 })
	}
	for _, req := range r.server.Requests() {
		if req.Resource == "nodes" && req.Verb == "patch" && req.Subresource == "status" && strings.Contains(string(req.Body), "Ready") {
			t.Errorf("a status was written: %s", req.Body)
		}
	}
}

func TestWhatTheServerDropsIsWrittenOnce(t *testing.T) {
	server := apifake.New(t)
	server.Drop(func(o apifake.Object) {
		if node, ok := o.(*corev1.Node); ok {
			node.Status.Features = nil
		}
	})
	r := start(t, server)
	r.awaitReady(corev1.ConditionTrue)
	withFeatures := status(true, true)
	withFeatures.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	r.set(withFeatures)
	writes := 0
	r.await("the features were written", func() bool { writes += r.writesOf("supplementalGroupsPolicy"); return writes > 0 })
	// The status is asked for again only when the last one has been compared.
	for range 4 {
		asked := r.timesAsked()
		r.Changed()
		r.await("the status was computed again", func() bool { return r.timesAsked() > asked })
	}
	if writes += r.writesOf("supplementalGroupsPolicy"); writes != 1 {
		t.Errorf("%d writes, want 1", writes)
	}
}

// timesAsked returns how often the runtime's status was asked for.
func (r *fixture) timesAsked() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.asked
}

// writesOf returns how many requests have been made since the last call whose bodies contain
// a text.
func (r *fixture) writesOf(text string) (n int) {
	for _, req := range r.server.Requests() {
		if strings.Contains(string(req.Body), text) {
			n++
		}
	}
	return n
}

func TestFaultsOfTheAPIServer(t *testing.T) {
	server := apifake.New(t)
	var mu sync.Mutex
	count := 0
	faults := []error{
		apifake.ErrDrop, apierrors.NewServiceUnavailable("not yet"), errors.New("something"), apifake.ErrDrop,
	}
	server.Fail(func(apifake.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if count++; count <= 4*len(faults) {
			return faults[count%len(faults)]
		}
		return nil
	})
	r := start(t, server)
	r.awaitReady(corev1.ConditionTrue)
	r.await("the lease is there", func() bool { return server.Lease("n") != nil })
}

func TestALeaseChangedByAnotherWriterIsStillRenewed(t *testing.T) {
	r := start(t, apifake.New(t), func(o *Options) { o.LeaseDuration = time.Second })
	r.awaitReady(corev1.ConditionTrue)
	r.await("the lease is there", func() bool { return r.server.Lease("n") != nil })
	lease := r.server.Lease("n")
	lease.Spec.HolderIdentity = nil
	r.server.Put(lease)
	r.await("it is held again", func() bool { l := r.server.Lease("n"); return l.Spec.HolderIdentity != nil })
	r.server.Forget(r.server.Lease("n"))
	r.await("it is there again", func() bool { return r.server.Lease("n") != nil })
	r.await("the node owns it", func() bool {
		o := r.server.Lease("n").OwnerReferences
		return len(o) == 1 && o[0].UID == r.server.Node("n").UID
	})
}

func TestWithoutRegistrationTheAgentWaitsForTheNode(t *testing.T) {
	server := apifake.New(t)
	r := start(t, server, func(o *Options) { o.Register = false })
	r.await("it was looked for", func() bool {
		return slices.ContainsFunc(server.Requests(), func(q apifake.Request) bool { return q.Resource == "nodes" })
	})
	if server.Node("n") != nil {
		t.Fatal("it was created")
	}
	server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	r.awaitReady(corev1.ConditionTrue)
}

func TestInStandaloneModeTheNodeIsComputed(t *testing.T) {
	n, err := New(Options{Name: "n", Hostname: "n", Network: network{standard: "10.0.0.1"}, Machine: Machine{CPUs: 3, Memory: 1, Storage: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	for n.Object().Status.Capacity.Cpu().Value() != 3 && ctx.Err() == nil {
		n.Changed()
	}
	cancel()
	running.Wait()
}

// references records what events are about.
type references struct {
	record.EventRecorder
	about chan<- runtime.Object
}

func (r references) Event(about runtime.Object, _, _, _ string) { r.about <- about }

// kubectl describe selects the events of a Node by the UID that kubelet gives them.
func TestEventsHaveTheNameOfTheNodeAsUID(t *testing.T) {
	about := make(chan runtime.Object, 1000)
	start(t, apifake.New(t), func(o *Options) { o.Recorder = references{about: about} })
	if ref, ok := (<-about).(*corev1.ObjectReference); !ok || ref.UID != "n" || ref.Name != "n" {
		t.Errorf("an event is about %v", ref)
	}
}
