// Package bootstrapsigner signs the kubeconfig in the config map cluster-info of the
// namespace kube-public with the bootstrap tokens whose usage is signing. A machine
// that has such a token verifies by the signature that it has read the authority
// of the right cluster.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens#configmap-signing
package bootstrapsigner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

const name = "bootstrapsigner"

// clusterInfo is the config map that is signed.
var clusterInfo = client.ObjectKey{Namespace: metav1.NamespacePublic, Name: api.ConfigMapClusterInfo}

// New declares the controller.
func New() controller.Controller {
	patch := controller.Can("", []string{"configmaps"}, []string{"patch"})
	patch.ResourceNames = []string{clusterInfo.Name}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{"bootstrap-signer-controller"},
		OnDemand:   true,
		Standalone: true,
		Reads:      []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		Selectors: []controller.Selector{
			{Object: &corev1.Secret{}, Fields: fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken))},
			{Object: &corev1.ConfigMap{}, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, clusterInfo.Name)},
		},
		Permissions: []rbacv1.PolicyRule{patch},
		Setup:       setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	request := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: clusterInfo}}
	}
	return controller.Run(env, controller.Options{Name: name, Workers: 1}, &reconciler{env.Client, env.Clock.Now},
		controller.For(&corev1.ConfigMap{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
			return client.ObjectKeyFromObject(obj) == clusterInfo
		})),
		controller.Map(&corev1.Secret{}, request, predicate.NewPredicateFuncs(isToken)))
}

// isToken reports whether an object is the secret of a bootstrap token.
func isToken(obj client.Object) bool {
	secret, ok := obj.(*corev1.Secret)
	return ok && secret.Type == api.SecretTypeBootstrapToken && secret.Namespace == metav1.NamespaceSystem
}
