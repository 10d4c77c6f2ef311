// Package clusterroleaggregation copies to a cluster role with an aggregationRule
// the rules of the cluster roles that it selects.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
package clusterroleaggregation

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller. It may give a role more rules than the controllers
// have themselves, which is the verb escalate.
func New() controller.Controller {
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"clusterrole-aggregation-controller", "clusterrole-aggregation"},
		Standalone:  true,
		Reads:       []client.Object{&rbacv1.ClusterRole{}},
		Permissions: []rbacv1.PolicyRule{controller.Can(rbacv1.GroupName, []string{"clusterroles"}, []string{"patch", "escalate"})},
		Setup:       setup,
	}
}

const name = "clusterroleaggregation"

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: name}, &reconciler{env.Client}, controller.Map(&rbacv1.ClusterRole{}, all))
}

// all returns the one request of the controller: a change of a role may change any
// role that aggregates it, or that aggregates one of those.
func all(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
