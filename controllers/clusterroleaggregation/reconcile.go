package clusterroleaggregation

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads all cluster roles. It writes the rules of those with an
// aggregationRule.
type reconciler struct {
	client client.Client
}

// Reconcile writes the rules of the roles that do not have those that they
// aggregate. The patch has the version that was read: without it, the rules of a
// user who removes the aggregationRule in the meantime would be overwritten.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var roles rbacv1.ClusterRoleList
	if err := r.client.List(ctx, &roles, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list cluster roles: %w", err)
	}
	var errs []error
	for _, change := range decide(roles.Items) {
		changed := change.role.DeepCopy()
		changed.Rules = change.rules
		patch := client.MergeFromWithOptions(change.role, client.MergeFromWithOptimisticLock{})
		if err := r.client.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("patch rules of cluster role %s: %w", change.role.Name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}
