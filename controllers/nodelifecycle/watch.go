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

// watchNodes requests nodes when something about them changes. All nodes that
// there are have been observed before the first one is looked at.
func (r *reconciler) watchNodes() controller.Watch[reconcile.Request] {
	observe := func(node *corev1.Node, q controller.Queue[reconcile.Request]) {
		r.mu.Lock()
		r.fleet.Observe(node, r.now())
		woken := r.fleet.Woken()
		r.mu.Unlock()
		request(q, woken...)
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.Node{}, Handler: handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			observe(e.Object.(*corev1.Node), q)
			request(q, e.Object.GetName())
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			observe(after, q)
			if !alike(before, after) {
				request(q, after.Name)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[reconcile.Request]) {
			request(q, e.Object.GetName())
		},
	}}
}

// alike tells whether two states of a node need the same, but for signs of life.
func alike(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable &&
		maps.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) }) &&
		slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status
		})
}

// watchLeases notes renewals. There are many, and nothing else happens then
// unless nobody was heard of for long.
func (r *reconciler) watchLeases() controller.Watch[reconcile.Request] {
	renewed := func(obj client.Object, q controller.Queue[reconcile.Request]) {
		lease := obj.(*coordinationv1.Lease)
		if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
			return
		}
		r.mu.Lock()
		r.fleet.Renewed(lease.Name, lease.Spec.RenewTime.Time, r.now())
		woken := r.fleet.Woken()
		r.mu.Unlock()
		request(q, woken...)
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
