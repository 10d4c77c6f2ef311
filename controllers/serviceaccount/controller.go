// Package serviceaccount creates the service account "default" in every
// namespace: the one of pods that name none.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
		Standalone:  true,
		Reads:       []client.Object{&corev1.Namespace{}, &corev1.ServiceAccount{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"serviceaccounts"}, []string{"create"})},
		Setup:       setup,
	}
}

// name is the name of the service account.
const name = "default"

// workers is how many namespaces are synced at the same time.
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

// namespaceOf returns the namespace of a service account.
func namespaceOf(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: obj.GetNamespace()}}}
}
