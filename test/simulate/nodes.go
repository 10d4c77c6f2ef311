// Package simulate plays the machines of a cluster for tests and benchmarks:
// nodes that report themselves ready, run whatever pods are bound to them, and
// stop them when they are deleted.
package simulate

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

// ExitAnnotation ends a pod as soon as it has started: with the exit code
// that is the annotation's value.
const ExitAnnotation = "simulate.svc.dev/exit-code"

// Nodes are simulated machines. Stop ends them; their objects stay.
type Nodes struct {
	client  kubernetes.Interface
	cancel  context.CancelFunc
	running sync.WaitGroup
	again   func(node string) // syncs the pods of a node

	mu    sync.Mutex
	nodes map[string]bool // whether the node sends heartbeats
	ips   int
	// leases are those that were last written.
	leases map[string]*coordinationv1.Lease
}

// heartbeat is the time between two renewals of a node's lease.
const heartbeat = 5 * time.Second

// workers is how many pods change at the same time.
const workers = 16

// Start begins to play machines, of which there are none yet.
func Start(config *rest.Config) (*Nodes, error) { return StartBeating(config, heartbeat) }

// StartBeating is Start with another time between two renewals of a lease.
func StartBeating(config *rest.Config, heartbeat time.Duration) (*Nodes, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "simulated-node"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Nodes{client: client, cancel: cancel, nodes: map[string]bool{}, leases: map[string]*coordinationv1.Lease{}}
	n.runPods(ctx, fields.OneTermNotEqualSelector("spec.nodeName", ""), workers)
	n.running.Go(func() { n.heartbeats(ctx, heartbeat) })
	return n, nil
}

// Stop ends all machines, as a power cut would.
func (n *Nodes) Stop() {
	n.cancel()
	n.running.Wait()
}

// Add creates a ready node with 32 CPUs, 64 GiB and room for 110 pods.
// change, if not nil, sets what is to be different.
func (n *Nodes) Add(ctx context.Context, name string, change func(*corev1.Node)) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the simulated node is ready",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}
	if change != nil {
		change(node)
	}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	// Before the node counts as alive, after which Run renews its lease as well.
	if err := n.renew(ctx, name); err != nil {
		return err
	}
	n.set(name, true)
	return nil
}

// Kill stops a machine: its lease is not renewed and its pods do not
// change any more.
func (n *Nodes) Kill(name string) { n.set(name, false) }

// Revive lets a stopped machine and its pods continue, and report that it is ready.
func (n *Nodes) Revive(ctx context.Context, name string) error {
	if err := n.renew(ctx, name); err != nil {
		return err
	}
	n.set(name, true)
	node, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.LastHeartbeatTime = corev1.ConditionTrue, "KubeletReady", metav1.Now()
		}
	}
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	n.again(name)
	return err
}

func (n *Nodes) set(name string, alive bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[name] = alive
}

func (n *Nodes) alive(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[name]
}

// heartbeats renews the leases of the living.
func (n *Nodes) heartbeats(ctx context.Context, heartbeat time.Duration) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n.mu.Lock()
		var names []string
		for name, alive := range n.nodes {
			if alive {
				names = append(names, name)
			}
		}
		n.mu.Unlock()
		for _, name := range names {
			// The server may be unavailable; the next heartbeat follows soon.
			_ = n.renew(ctx, name)
		}
	}
}

// renew renews the lease that was last written, or else the stored one.
func (n *Nodes) renew(ctx context.Context, name string) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	n.mu.Lock()
	lease := n.leases[name]
	n.mu.Unlock()
	var err error
	if lease == nil {
		if lease, err = leases.Get(ctx, name, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	now := metav1.NowMicro()
	if apierrors.IsNotFound(err) {
		lease, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: &now},
		}, metav1.CreateOptions{})
	} else {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &now
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		lease = nil // another client may have changed it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases[name] = lease
	return err
}

// runPods does to the selected pods what their nodes would.
func (n *Nodes) runPods(ctx context.Context, selected fields.Selector, workers int) {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = selected.String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	n.again = func(node string) {
		for _, obj := range informer.GetStore().List() {
			if obj.(*corev1.Pod).Spec.NodeName == node {
				enqueue(obj)
			}
		}
	}
	// A new informer takes handlers; it has no reason to refuse one.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	factory.Start(ctx.Done())
	for range workers {
		n.running.Go(func() {
			for {
				key, stop := queue.Get()
				if stop {
					return
				}
				if obj, ok, _ := informer.GetStore().GetByKey(key); ok {
					if err := n.sync(ctx, obj.(*corev1.Pod)); err != nil {
						queue.AddRateLimited(key)
					} else {
						queue.Forget(key)
					}
				}
				queue.Done(key)
			}
		})
	}
	n.running.Go(func() {
		<-ctx.Done()
		queue.ShutDown()
		factory.Shutdown()
	})
}

// sync does the next thing to a pod: stop it, start it or end it. Conflicts and
// deleted pods are not errors: the next event shows them.
func (n *Nodes) sync(ctx context.Context, pod *corev1.Pod) error {
	if !n.alive(pod.Spec.NodeName) {
		return nil
	}
	var err error
	pods := n.client.CoreV1().Pods(pod.Namespace)
	exit, ends := pod.Annotations[ExitAnnotation]
	switch {
	case pod.DeletionTimestamp != nil && !podspec.IsTerminal(pod.Status.Phase):
		_, err = pods.UpdateStatus(ctx, ended(pod, killed), metav1.UpdateOptions{})
	case pod.DeletionTimestamp != nil:
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		_, err = pods.UpdateStatus(ctx, n.started(pod), metav1.UpdateOptions{})
	case pod.Status.Phase == corev1.PodRunning && ends:
		_, err = pods.UpdateStatus(ctx, ended(pod, exit), metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// killed is the exit code of a container that had to be killed.
const killed = "137"

// started is the pod when all its containers run and are ready.
func (n *Nodes) started(pod *corev1.Pod) *corev1.Pod {
	n.mu.Lock()
	n.ips++
	ip := fmt.Sprintf("10.%d.%d.%d", 128+n.ips>>16&127, n.ips>>8&255, n.ips&255)
	n.mu.Unlock()
	now := metav1.Now()
	pod = pod.DeepCopy()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	for _, c := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		setCondition(pod, c, corev1.ConditionTrue)
	}
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return pod
}

// ended is the pod when all its containers have ended with an exit code.
func ended(pod *corev1.Pod, exit string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	var code int32
	if _, err := fmt.Sscan(exit, &code); err != nil || code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		setCondition(pod, c, corev1.ConditionFalse)
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		s.Ready, s.Started = false, ptr.To(false)
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now()}}
	}
	return pod
}

func setCondition(pod *corev1.Pod, name corev1.PodConditionType, status corev1.ConditionStatus) {
	condition := corev1.PodCondition{Type: name, Status: status, LastTransitionTime: metav1.Now()}
	if old := podspec.Condition(&pod.Status, name); old != nil {
		*old = condition
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}
