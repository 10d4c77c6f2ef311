// Package tokencleaner deletes the secrets of bootstrap tokens that have expired
// (document 2, section 5).
package tokencleaner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

const name = "tokencleaner"

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:       name,
		Aliases:    []string{"token-cleaner-controller"},
		OnDemand:   true,
		Standalone: true,
		Reads:      []client.Object{&corev1.Secret{}},
		Selectors: []controller.Selector{
			{Object: &corev1.Secret{}, Fields: fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken))},
		},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"secrets"}, []string{"delete"})},
		Setup:       setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: name, Workers: 1}, &reconciler{env.Client, env.Clock.Now},
		controller.For(&corev1.Secret{}, predicate.NewPredicateFuncs(isToken)))
}

// isToken reports whether an object is the secret of a bootstrap token.
func isToken(obj client.Object) bool {
	secret, ok := obj.(*corev1.Secret)
	return ok && secret.Type == api.SecretTypeBootstrapToken && secret.Namespace == metav1.NamespaceSystem
}
