// Package pvprotection protects persistent volumes that are bound to claims from
// deletion with a finalizer.
package pvprotection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "pvprotection",
		Aliases:     []string{"pv-protection", "persistentvolume-protection-controller"},
		Reads:       []client.Object{&corev1.PersistentVolume{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"persistentvolumes"}, []string{"patch"})},
		Setup: func(_ context.Context, env *controller.Env) error {
			needed := predicate.NewPredicateFuncs(func(obj client.Object) bool {
				return decide(obj.(*corev1.PersistentVolume)) != keep
			})
			return controller.Run(env, controller.Options{Name: "pvprotection", Workers: workers}, &reconciler{env.Client}, controller.For(&corev1.PersistentVolume{}, needed))
		},
	}
}

const workers = 2
