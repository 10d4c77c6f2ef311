package pvprotection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads persistent volumes. It is the only writer of their finalizer
// kubernetes.io/pv-protection.
type reconciler struct {
	client client.Client
}

// Reconcile adds or removes the finalizer of a volume.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, pv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	patch := client.MergeFromWithOptions(pv.DeepCopy(), client.MergeFromWithOptimisticLock{})
	switch decide(pv) {
	case add:
		controllerutil.AddFinalizer(pv, finalizer)
	case remove:
		controllerutil.RemoveFinalizer(pv, finalizer)
	case keep:
		return reconcile.Result{}, nil
	}
	if err := client.IgnoreNotFound(r.client.Patch(ctx, pv, patch)); err != nil {
		return reconcile.Result{}, fmt.Errorf("finalizers of persistent volume %s: %w", pv.Name, err)
	}
	return reconcile.Result{}, nil
}
