package rootcapublisher

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads namespaces and the config maps named kube-root-ca.crt. It
// creates these and corrects their data and their description.
type reconciler struct {
	client client.Client
	rootCA string
}

// Reconcile creates or corrects the config map of a namespace.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !wanted(ns) {
		return reconcile.Result{}, nil
	}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(bundle), bundle)
	switch {
	case apierrors.IsNotFound(err):
		complete(bundle, r.rootCA)
		err = r.client.Create(ctx, bundle)
	case err == nil:
		if was := bundle.DeepCopy(); complete(bundle, r.rootCA) {
			err = r.client.Patch(ctx, bundle, client.MergeFrom(was))
		}
	}
	// A namespace that was deleted in the meantime needs none. A config map that
	// another client created or deleted is synced by its event.
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, fmt.Errorf("config map %s of namespace %s: %w", name, ns.Name, err)
}
