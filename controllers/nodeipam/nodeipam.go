// Package nodeipam gives every node ranges of addresses for its pods: one of
// each family of the cluster's.
package nodeipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{}
	return controller.Controller{
		Name:        "nodeipam",
		Aliases:     []string{"node-ipam-controller"},
		Reads:       []client.Object{&corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"nodes"}, []string{"patch"})},
		Flags:       o.addFlags,
		Validate:    o.validate,
		Setup:       o.setup,
	}
}

const workers = 4

// setup adds the controller if nodes are to get ranges.
func (o *options) setup(_ context.Context, env *controller.Env) error {
	if !o.allocate {
		return nil
	}
	clusters, err := o.clusters()
	if err != nil {
		return err
	}
	services, err := families(serviceFlag, o.serviceCIDR)
	if err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, recorder: env.Recorder("cidrAllocator"),
		allocator: newAllocator(clusters, services), waiting: map[string]bool{},
	}
	trigger := &controller.Trigger[reconcile.Request]{}
	r.enqueue = trigger.Enqueue
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.UID != after.UID || !slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs)
	}}
	return controller.Run(env, controller.Options{Name: "nodeipam", Workers: workers}, r,
		trigger.Watch(), controller.For(&corev1.Node{}, changed))
}

// reconciler reads nodes; it writes their pod CIDRs, once, if nobody else has.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	// enqueue requests the sync of other nodes.
	enqueue func(...reconcile.Request)

	mu        sync.Mutex
	allocator *allocator
	// filled tells that the allocator knows the ranges of all nodes.
	filled bool
	// waiting are the nodes for which no range was left.
	waiting map[string]bool
}

// Reconcile gives ranges to a node that has none, and takes notice of those that
// it has or had.
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
		klog.FromContext(ctx).Error(nil, "No range of addresses is left for a node: make --cluster-cidr larger, or the nodes' ranges smaller", "node", node.Name)
		r.tell(node, "CIDRNotAvailable")
		return reconcile.Result{}, nil // until a range is free
	}
	return reconcile.Result{}, r.assign(ctx, node, ranges)
}

// fill tells the allocator which ranges nodes have, at first. The API server is
// asked itself: the cache may not know yet what another manager wrote last.
func (r *reconciler) fill(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.filled {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.live.List(ctx, &nodes); err != nil {
		return fmt.Errorf("the ranges that nodes have: %w", err)
	}
	for i := range nodes.Items {
		r.allocator.hold(nodes.Items[i].Name, rangesOf(&nodes.Items[i]))
	}
	r.filled = true
	return nil
}

// hold notes the ranges of a node, and requests the nodes that wait for one if
// one may be free now.
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

// assign writes the ranges of the node. They stay the node's if that fails: it
// may have been done all the same, and is tried again.
func (r *reconciler) assign(ctx context.Context, node *corev1.Node, ranges []netip.Prefix) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	for _, p := range ranges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	err := r.client.Patch(ctx, node, patch)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Gave a node its ranges", "node", node.Name, "ranges", ranges)
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.tell(node, "CIDRAssignmentFailed")
	}
	return client.IgnoreNotFound(fmt.Errorf("ranges of node %s: %w", node.Name, err))
}

func (r *reconciler) tell(node *corev1.Node, what string) {
	r.recorder.Eventf(node, corev1.EventTypeNormal, what, "Node %s status is now: %s", node.Name, what)
}

// rangesOf are the ranges that the node has.
func rangesOf(node *corev1.Node) []netip.Prefix {
	var ranges []netip.Prefix
	for _, cidr := range node.Spec.PodCIDRs {
		// The API server takes nothing else.
		if r, ok := parse(cidr); ok {
			ranges = append(ranges, r)
		}
	}
	return ranges
}
