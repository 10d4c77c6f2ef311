package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/node/topology"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/nodelifecycle/fleet"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads nodes, their leases and pods. It is the only writer of node
// conditions with the status Unknown, of the taints for node conditions, for nodes
// that are not ready and for cordoned nodes, and of the beta labels of operating
// system and architecture. It makes the pods of unreachable nodes not ready.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	now      func() time.Time
	metrics  *nodeMetrics
	// enqueue requests the sync of other nodes.
	enqueue func(...reconcile.Request)

	mu    sync.Mutex
	fleet *fleet.Fleet
}

// Reconcile updates the conditions, taints and labels of a node, and the readiness
// of its pods.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	err := r.client.Get(ctx, req.NamespacedName, node)
	if apierrors.IsNotFound(err) {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	v := r.decide(node)
	if v.New {
		r.recorder.Eventf(node, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name, node.Name)
	}
	if v.Unreachable {
		if err := r.readLease(ctx, node.Name); err != nil {
			return reconcile.Result{}, err
		}
		// The watch may also have delivered a renewal meanwhile.
		v = r.decide(node)
	}
	if v.Unreachable {
		if err := r.setUnreachable(ctx, node); err != nil {
			return reconcile.Result{}, err
		}
		v = r.decide(node)
	}
	if err := r.mark(ctx, node, v.Taint); err != nil {
		return reconcile.Result{}, err
	}
	if readiness(node) == corev1.ConditionUnknown {
		if err := r.markPods(ctx, node); err != nil {
			return reconcile.Result{}, err
		}
	}
	if v.Requeue.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(v.Requeue.Sub(r.now()), time.Millisecond)}, nil
}

// decide returns the fleet's verdict on a node, and enqueues the nodes that it
// affects.
func (r *reconciler) decide(node *corev1.Node) fleet.Verdict {
	r.mu.Lock()
	v := r.fleet.Decide(node, r.now())
	affected := r.fleet.Affected()
	r.metrics.measure(r.fleet.Zones())
	r.mu.Unlock()
	r.enqueue(requests(affected...)...)
	return v
}

// forget forgets a node that was deleted.
func (r *reconciler) forget(name string) {
	r.mu.Lock()
	uid := r.fleet.Gone(name)
	r.metrics.measure(r.fleet.Zones())
	r.mu.Unlock()
	if uid == "" {
		return
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	r.recorder.Eventf(node, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", name, name)
}

// readLease records as a heartbeat what the API server has of the node's lease, if it is a
// renewal that the cache lacks. A watch of leases that stalls does not make nodes unreachable.
func (r *reconciler) readLease(ctx context.Context, name string) error {
	key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}
	lease, cached := &coordinationv1.Lease{}, &coordinationv1.Lease{}
	if err := r.live.Get(ctx, key, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := r.client.Get(ctx, key, cached, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return err
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Equal(cached.Spec.RenewTime) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fleet.Renewed(name, lease.Spec.RenewTime.Time, r.now())
	return nil
}

// setUnreachable sets the conditions that the node posts to Unknown.
func (r *reconciler) setUnreachable(ctx context.Context, node *corev1.Node) error {
	ready := readiness(node)
	setUnknown(node, r.now())
	if err := r.client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("status of node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Node is unreachable", "node", klog.KObj(node))
	if ready == corev1.ConditionTrue {
		r.recorder.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	return nil
}

// mark updates the node's taints and labels.
func (r *reconciler) mark(ctx context.Context, node *corev1.Node, evicting string) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	evicted := slices.ContainsFunc(node.Spec.Taints, fleet.IsEvictionTaint)
	labelled := setLabels(node)
	if !setTaints(node, evicting, r.now()) && !labelled {
		return nil
	}
	if err := r.client.Patch(ctx, node, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("taints of node %s: %w", node.Name, err))
	}
	if evicting != "" && !evicted {
		r.metrics.evictions.WithLabelValues(topology.GetZoneKey(node)).Inc()
	}
	klog.FromContext(ctx).V(2).Info("Updated node taints and labels", "node", klog.KObj(node), "taints", node.Spec.Taints)
	return nil
}

// markPods makes the pods of an unreachable node not ready.
func (r *reconciler) markPods(ctx context.Context, node *corev1.Node) error {
	var bound corev1.PodList
	if err := r.client.List(ctx, &bound, client.MatchingFields{index.PodsByNode().Name: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var errs []error
	for i := range bound.Items {
		if !pods.IsReady(&bound.Items[i]) {
			continue
		}
		pod := bound.Items[i].DeepCopy()
		ready := *pods.Condition(pod, corev1.PodReady)
		ready.Status = corev1.ConditionFalse
		pods.SetCondition(pod, ready, r.now())
		if err := r.client.Status().Update(ctx, pod); err != nil {
			errs = append(errs, client.IgnoreNotFound(fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)))
			continue
		}
		r.recorder.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return errors.Join(errs...)
}
