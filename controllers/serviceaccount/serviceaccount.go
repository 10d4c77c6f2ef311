// Package serviceaccount sees to it that every namespace has the service account
// "default": pods that name no other run as it.
package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "serviceaccount",
		Aliases:     []string{"serviceaccount-controller"},
		Reads:       []client.Object{&corev1.Namespace{}, &corev1.ServiceAccount{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"serviceaccounts"}, []string{"create"})},
		Setup:       setup,
	}
}

// name is that of the service account.
const name = "default"

// workers is how many namespaces are looked at at the same time.
const workers = 2

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: "serviceaccount", Workers: workers}, &reconciler{env.Client},
		controller.For(&corev1.Namespace{}, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }}),
		controller.Map(&corev1.ServiceAccount{}, namespaceOf, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetName() == name },
		}))
}

func namespaceOf(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: obj.GetNamespace()}}}
}

// reconciler reads namespaces and service accounts; it creates service accounts
// named default, and writes nothing to those that are there.
type reconciler struct {
	client client.Client
}

// Reconcile creates the service account of a namespace if it is missing.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.Status.Phase != corev1.NamespaceActive || ns.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(account), &corev1.ServiceAccount{}, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.client.Create(ctx, account)
	}
	// A namespace that is deleted meanwhile needs none.
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, fmt.Errorf("service account %s of namespace %s: %w", name, ns.Name, err)
}
