// Package validatingadmissionpolicystatus owns the controller that checks the types of the
// expressions of validating admission policies, and writes warnings into their status.
package validatingadmissionpolicystatus

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/versions"
)

// policies are the versions of the kind; releases before 1.30 have the others, which are
// not served by default.
var policies = []versions.Version[policy]{
	versions.Of[policy](),
	versions.Alike[policy, admissionv1beta1.ValidatingAdmissionPolicy](),
	versions.Alike[policy, admissionv1alpha1.ValidatingAdmissionPolicy](),
}

type policy = admissionv1.ValidatingAdmissionPolicy

// New declares the controller.
func New() controller.Controller {
	kinds := versions.Objects(policies)
	// One at a time: the environment of an expression is large.
	o := &options{concurrent: 1}
	return controller.Controller{
		Name:    "validatingadmissionpolicy-status",
		Aliases: []string{"validatingadmissionpolicy-status-controller"},
		Newer:   true,
		Reads:   kinds[:1],
		Older:   kinds[1:],
		Permissions: []rbacv1.PolicyRule{
			controller.Can("admissionregistration.k8s.io", []string{"validatingadmissionpolicies/status"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many validating admission policies are checked at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-validating-admission-policy-status-syncs"

type options struct{ concurrent int }

func (o *options) setup(_ context.Context, env *controller.Env) error {
	version, _, err := versions.Served(policies, env.Served)
	if err != nil {
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(env.Manager.GetConfig())
	if err != nil {
		return err
	}
	checker := &validating.TypeChecker{SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: found}, RestMapper: env.Client.RESTMapper()}
	return controller.Run(env, controller.Options{Name: "validatingadmissionpolicy-status", Workers: o.concurrent},
		&reconciler{versions.Client[policy]{Client: env.Client, Version: version}, checker.Check}, controller.For(version.Object))
}

// reconciler reads policies, and alone writes their status.
type reconciler struct {
	policies versions.Client[policy]
	check    func(*policy) []admissionv1.ExpressionWarning
}

// Reconcile checks a policy that has changed since it was checked.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy, err := r.policies.Get(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if policy.DeletionTimestamp != nil || policy.Status.ObservedGeneration >= policy.Generation {
		return reconcile.Result{}, nil
	}
	policy.Status.ObservedGeneration = policy.Generation
	policy.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: r.check(policy)}
	if err := r.policies.UpdateStatus(ctx, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("status of validating admission policy %s: %w", policy.Name, err))
	}
	return reconcile.Result{}, nil
}
