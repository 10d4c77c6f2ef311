package nodeipam

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads nodes. It writes the pod CIDRs of nodes that have none; they
// never change afterwards.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	// enqueue requests the sync of other nodes.
	enqueue func(...reconcile.Request)

	mu        sync.Mutex
	allocator *allocator
	// filled is true if the allocator has the pod CIDRs of all nodes.
	filled bool
	// waiting are the nodes for which no CIDR was free.
	waiting map[string]bool
}

// Reconcile allocates pod CIDRs to a node that has none, and records those of
// other nodes. The pod CIDRs of a node that was deleted become free.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.fill(ctx); err != nil {
		return reconcile.Result{}, err
	}
	node := &corev1.Node{}
	err := r.client.Get(ctx, req.NamespacedName, node)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil || len(node.Spec.PodCIDRs) > 0 {
		r.hold(req.Name, rangesOf(node))
		return reconcile.Result{}, nil
	}
	if node.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	ranges, ok := r.allocate(node.Name)
	if !ok {
		klog.FromContext(ctx).Error(nil, "Failed to allocate pod CIDR, the cluster CIDR is exhausted: enlarge --cluster-cidr or the node CIDR mask size", "node", klog.KObj(node))
		r.recordEvent(node, "CIDRNotAvailable")
		return reconcile.Result{}, nil // hold enqueues it when a CIDR becomes free
	}
	return reconcile.Result{}, r.assign(ctx, node, ranges)
}

// fill gives the allocator the pod CIDRs of all nodes, once. It lists from the API
// server, because the cache may not have the last writes of another manager.
func (r *reconciler) fill(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.filled {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.live.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list pod CIDRs of nodes: %w", err)
	}
	for i := range nodes.Items {
		r.allocator.hold(nodes.Items[i].Name, rangesOf(&nodes.Items[i]))
	}
	r.filled = true
	return nil
}

// hold records the pod CIDRs of a node, and enqueues the waiting nodes if others
// may have become free.
func (r *reconciler) hold(node string, ranges []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, node)
	if !r.allocator.hold(node, ranges) {
		return
	}
	for name := range r.waiting {
		r.enqueue(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
}

// allocate allocates pod CIDRs to a node, or makes it wait.
func (r *reconciler) allocate(node string) ([]netip.Prefix, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ranges, ok := r.allocator.allocate(node)
	if ok {
		delete(r.waiting, node)
	} else {
		r.waiting[node] = true
	}
	return ranges, ok
}

// assign writes the pod CIDRs of the node. They stay allocated if that fails,
// because the API server may have written them, and the node is retried.
func (r *reconciler) assign(ctx context.Context, node *corev1.Node, ranges []netip.Prefix) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	for _, p := range ranges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	err := r.client.Patch(ctx, node, patch)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Assigned pod CIDRs", "node", klog.KObj(node), "podCIDRs", ranges)
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.recordEvent(node, "CIDRAssignmentFailed")
	}
	return client.IgnoreNotFound(fmt.Errorf("pod CIDRs of node %s: %w", node.Name, err))
}

func (r *reconciler) recordEvent(node *corev1.Node, what string) {
	r.recorder.Eventf(node, corev1.EventTypeNormal, what, "Node %s status is now: %s", node.Name, what)
}

// rangesOf returns the pod CIDRs of the node.
func rangesOf(node *corev1.Node) []netip.Prefix {
	var ranges []netip.Prefix
	for _, cidr := range node.Spec.PodCIDRs {
		// The API server rejects any other value.
		if r, ok := parse(cidr); ok {
			ranges = append(ranges, r)
		}
	}
	return ranges
}
