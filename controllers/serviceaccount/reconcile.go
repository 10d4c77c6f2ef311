package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads namespaces and service accounts. It creates service accounts
// named "default", and never changes existing ones.
type reconciler struct {
	client client.Client
}

// Reconcile creates the service account of a namespace if it is missing.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !wanted(ns) {
		return reconcile.Result{}, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(account), &corev1.ServiceAccount{}, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.client.Create(ctx, account)
	}
	// A namespace that was deleted in the meantime needs none.
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, fmt.Errorf("service account %s of namespace %s: %w", name, ns.Name, err)
}
