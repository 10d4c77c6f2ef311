package persistentvolumebinder

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	cache   client.Reader
	claims  *controller.Trigger[reconcile.Request]
	trigger controller.Trigger[string]
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

// classEvents enqueues a new or changed class, and "": it may be the default of claims
// without one.
func classEvents() controller.Watch[string] {
	enqueue := func(q controller.Queue[string], class client.Object) {
		q.Add(class.GetName())
		q.Add("")
	}
	return controller.Watch[string]{Object: &storagev1.StorageClass{}, Handler: handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[string]) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) { enqueue(q, e.ObjectNew) },
	}}
}
