// Package rootcapublisher writes the config map kube-root-ca.crt into every
// namespace: the certificates by which pods verify the API server.
package rootcapublisher

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	patch := controller.Can("", []string{"configmaps"}, []string{"patch"})
	patch.ResourceNames = []string{name}
	return controller.Controller{
		Name:        "root-ca-cert-publisher",
		Aliases:     []string{"root-ca-certificate-publisher-controller", "rootcapublisher"},
		Standalone:  true,
		Reads:       []client.Object{&corev1.Namespace{}, &corev1.ConfigMap{}},
		Selectors:   []controller.Selector{{Object: &corev1.ConfigMap{}, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"configmaps"}, []string{"create"}), patch},
		Setup:       setup,
	}
}

// name is the name of the config maps.
const name = "kube-root-ca.crt"

// workers is how many namespaces are synced at the same time.
const workers = 2

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: "root-ca-cert-publisher", Workers: workers}, &reconciler{env.Client, string(env.RootCA)},
		controller.For(&corev1.Namespace{}, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }}),
		controller.Map(&corev1.ConfigMap{}, namespaceOf, predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == name })))
}

// namespaceOf returns the namespace of a config map.
func namespaceOf(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: obj.GetNamespace()}}}
}
