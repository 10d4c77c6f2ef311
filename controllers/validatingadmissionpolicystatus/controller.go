// Package validatingadmissionpolicystatus owns the controller that checks the types of the
// expressions of validating admission policies, and writes warnings into their status.
package validatingadmissionpolicystatus

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "validatingadmissionpolicy-status",
		Aliases: []string{"validatingadmissionpolicy-status-controller"},
		Newer:   true,
		Reads:   []client.Object{&admissionv1.ValidatingAdmissionPolicy{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("admissionregistration.k8s.io", []string{"validatingadmissionpolicies/status"}, []string{"patch"}),
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	found, err := discovery.NewDiscoveryClientForConfig(env.Manager.GetConfig())
	if err != nil {
		return err
	}
	checker := &validating.TypeChecker{SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: found}, RestMapper: env.Client.RESTMapper()}
	// One at a time: the environment of an expression is large.
	return controller.Run(env, controller.Options{Name: "validatingadmissionpolicy-status", Workers: 1},
		&reconciler{env.Client, checker.Check}, controller.For(&admissionv1.ValidatingAdmissionPolicy{}))
}

// reconciler reads policies, and alone writes their status.
type reconciler struct {
	client client.Client
	check  func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning
}

// Reconcile checks a policy that has changed since it was checked.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if policy.DeletionTimestamp != nil || policy.Status.ObservedGeneration >= policy.Generation {
		return reconcile.Result{}, nil
	}
	before := policy.DeepCopy()
	policy.Status.ObservedGeneration = policy.Generation
	policy.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: r.check(policy)}
	if err := r.client.Status().Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("status of validating admission policy %s: %w", policy.Name, err))
	}
	return reconcile.Result{}, nil
}
