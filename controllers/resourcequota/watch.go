package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	library "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// respecified reports whether an update changes what a quota limits. Updates of the
// status come from this controller and from admission.
func respecified(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota)
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// measured enqueues quotas when the usage of objects that they limit changes. It
// does not enqueue them for new objects: admission has added their usage already. To
// calculate it again from a cache that does not have all new objects yet would lower it.
type measured struct {
	reader     client.Reader
	evaluators []library.Evaluator
}

// watch returns the watch of a kind that has an evaluator.
func (m measured) watch(kind client.Object, resource string) controller.Watch[reconcile.Request] {
	type queue = controller.Queue[reconcile.Request]
	var evaluator library.Evaluator
	for _, e := range m.evaluators {
		if e.GroupResource().Resource == resource {
			evaluator = e
		}
	}
	on := func(ctx context.Context, q queue, before, after client.Object) {
		for _, quota := range m.quotas(ctx, after.GetNamespace(), evaluator) {
			if before == nil || changed(evaluator, quota, before, after) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(quota)})
			}
		}
	}
	return controller.Watch[reconcile.Request]{Object: kind, Handler: handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { on(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { on(ctx, q, nil, e.Object) },
	}}
}

// quotas returns the quotas of a namespace that limit what the evaluator measures.
func (m measured) quotas(ctx context.Context, namespace string, evaluator library.Evaluator) []*corev1.ResourceQuota {
	var list corev1.ResourceQuotaList
	if err := m.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped
	}
	var quotas []*corev1.ResourceQuota
	for i := range list.Items {
		if q := &list.Items[i]; len(evaluator.MatchingResources(library.ResourceNames(q.Spec.Hard))) > 0 {
			quotas = append(quotas, q)
		}
	}
	return quotas
}

// changed reports whether an object may use more or less of a quota than before.
func changed(evaluator library.Evaluator, q *corev1.ResourceQuota, before, after client.Object) bool {
	if before.GetUID() != after.GetUID() || (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) {
		return true
	}
	was, err1 := evaluator.Matches(q, before)
	is, err2 := evaluator.Matches(q, after)
	used, err3 := evaluator.Usage(before)
	uses, err4 := evaluator.Usage(after)
	return err1 != nil || err2 != nil || err3 != nil || err4 != nil || was != is || !library.Equals(used, uses)
}
