package nodelifecycle

import (
	"context"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// watchNodes enqueues nodes that change in more than their heartbeats. The fleet
// has observed all nodes of the initial list before the first sync.
func (r *reconciler) watchNodes() controller.Watch[reconcile.Request] {
	observe := func(node *corev1.Node, q controller.Queue[reconcile.Request]) {
		r.mu.Lock()
		r.fleet.Observe(node, r.now())
		affected := r.fleet.Affected()
		r.mu.Unlock()
		enqueue(q, affected...)
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.Node{}, Handler: handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			observe(e.Object.(*corev1.Node), q)
			enqueue(q, e.Object.GetName())
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			observe(after, q)
			if !alike(before, after) {
				enqueue(q, after.Name)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[reconcile.Request]) {
			enqueue(q, e.Object.GetName())
		},
	}}
}

// alike reports whether two states of a node differ at most in their heartbeats.
func alike(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable &&
		maps.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) }) &&
		slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status
		})
}

// watchLeases records renewals of leases. They are frequent, and enqueue nodes only
// if all nodes were silent before.
func (r *reconciler) watchLeases() controller.Watch[reconcile.Request] {
	renewed := func(obj client.Object, q controller.Queue[reconcile.Request]) {
		lease := obj.(*coordinationv1.Lease)
		if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
			return
		}
		r.mu.Lock()
		r.fleet.Renewed(lease.Name, lease.Spec.RenewTime.Time, r.now())
		affected := r.fleet.Affected()
		r.mu.Unlock()
		enqueue(q, affected...)
	}
	return controller.Watch[reconcile.Request]{Object: &coordinationv1.Lease{}, Handler: handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			renewed(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			renewed(e.ObjectNew, q)
		},
	}}
}

// requests returns requests for the nodes of these names.
func requests(names ...string) []reconcile.Request {
	var all []reconcile.Request
	for _, name := range names {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return all
}

// enqueue enqueues the nodes of these names.
func enqueue(q controller.Queue[reconcile.Request], names ...string) {
	for _, r := range requests(names...) {
		q.Add(r)
	}
}
