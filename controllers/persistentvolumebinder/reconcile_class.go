package persistentvolumebinder

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// classInterval is the minimum time between two syncs of the claims of a class, which
// may be thousands, as may be the volumes that become available at the same time.
const classInterval = 500 * time.Millisecond

// classReconciler reads claims, and requests a sync of those of a class that are not
// bound, because a volume of the class has become available or the class has changed.
// A request is the name of a class, "" for the claims without one.
type classReconciler struct {
	cache  client.Reader
	claims *controller.Trigger[reconcile.Request]
}

// Reconcile requests the syncs.
func (r *classReconciler) Reconcile(ctx context.Context, class string) (reconcile.Result, error) {
	var list corev1.PersistentVolumeClaimList
	if err := r.cache.List(ctx, &list, client.MatchingFields{unboundByClass().Name: classValue(class)}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	r.claims.Enqueue(requests...)
	return reconcile.Result{}, nil
}

// classEvents enqueues the classes whose claims a new or changed object concerns.
func classEvents(obj client.Object, classes func(client.Object) []string) controller.Watch[string] {
	enqueue := func(q controller.Queue[string], obj client.Object) {
		for _, class := range classes(obj) {
			q.Add(class)
		}
	}
	return controller.Watch[string]{Object: obj, Handler: handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[string]) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) { enqueue(q, e.ObjectNew) },
	}}
}

// classOfVolume returns the class of a volume that claims can be bound to.
func classOfVolume(obj client.Object) []string {
	if pv := obj.(*corev1.PersistentVolume); available(pv) {
		return []string{volume.GetPersistentVolumeClass(pv)}
	}
	return nil
}

// classesOfClass returns a class, and "": it may be the default of claims without one.
func classesOfClass(obj client.Object) []string { return []string{obj.GetName(), ""} }
