// Package escalation owns the admission check that prevents privilege
// escalation through RBAC objects.
//
// A user who creates or updates a role must hold all of its rules or be allowed
// to escalate the role. A user who creates or updates a binding must hold all
// rules of its role or be allowed to bind the role.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
package escalation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/klog/v2"

	"svc.dev/svc/apiserver/authorization"
)

// Roles looks up the rules of users and roles.
type Roles interface {
	// Held returns the rules that a user holds in a namespace. If the namespace is
	// empty, it returns those that the user holds in all namespaces.
	Held(ctx context.Context, who user.Info, namespace string) ([]rbacv1.PolicyRule, error)
	// Rules returns the rules of the role that a binding in the namespace refers to.
	Rules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
}

// Guard adds the check to a chain of admission plugins. It is not registered as a
// plugin, so that it cannot be disabled.
func Guard(chain admission.Interface, may authorizer.Authorizer, roles Roles) admission.Interface {
	return admission.NewChainHandler(chain, &guard{admission.NewHandler(admission.Create, admission.Update), may, roles})
}

type guard struct {
	*admission.Handler
	may   authorizer.Authorizer
	roles Roles
}

var _ admission.ValidationInterface = &guard{}

// Validate implements admission.ValidationInterface. It selects by Go type, which
// is the same for every group domain of a kind.
func (g *guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	who := a.GetUserInfo()
	if who == nil || a.GetSubresource() != "" || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	var err error
	switch obj := a.GetObject().(type) {
	case *rbacv1.Role:
		err = g.role(ctx, a, obj.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.GetOldObject().(*rbacv1.ClusterRole)
		err = g.role(ctx, a, obj.Rules, gathers(obj) || gathers(old))
	case *rbacv1.RoleBinding:
		err = g.binding(ctx, a, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		err = g.binding(ctx, a, obj.RoleRef)
	}
	if err == nil || apierrors.IsNotFound(err) { // the binding's role does not exist
		return err
	}
	return admission.NewForbidden(a, err)
}

// gathers reports whether the role has an aggregation rule, which adds the rules
// of other roles to it.
func gathers(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// role returns an error unless the user may write a role with these rules. The verb escalate
// is for the name in the request's path, as in kube-apiserver: a creation by POST has none
// there, so that the right to escalate one role by its name is none to create it.
func (g *guard) role(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule, gathers bool) error {
	if OnlyGarbageCollection(a.GetObject(), a.GetOldObject()) {
		return nil
	}
	info, found := request.RequestInfoFrom(ctx)
	if found && g.allowed(ctx, a, "escalate", a.GetResource().Resource, info.Name) {
		return nil
	}
	if err := g.holds(ctx, a.GetUserInfo(), a.GetNamespace(), rules); err != nil {
		return err
	}
	if gathers && g.holds(ctx, a.GetUserInfo(), a.GetNamespace(), authorization.Everything()) != nil {
		return errors.New("must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

// binding returns an error unless the user may write a binding to a role.
func (g *guard) binding(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) error {
	if OnlyGarbageCollection(a.GetObject(), a.GetOldObject()) {
		return nil
	}
	resource := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if g.allowed(ctx, a, "bind", resource, ref.Name) {
		return nil
	}
	rules, err := g.roles.Rules(ctx, ref, a.GetNamespace())
	if apierrors.IsNotFound(err) {
		// Tools know the answer of kube-apiserver, whose storage names the resource of the request.
		return apierrors.NewNotFound(a.GetResource().GroupResource(), ref.Name)
	}
	if err != nil {
		return err
	}
	return g.holds(ctx, a.GetUserInfo(), a.GetNamespace(), rules)
}

// allowed reports whether the user may use the verb on a role, in the namespace of
// the object of the request. An authorizer that fails does not: what matters then are
// the rules that the user holds, and the error is only for the log, not for the user.
func (g *guard) allowed(ctx context.Context, a admission.Attributes, verb, resource, name string) bool {
	decision, _, err := g.may.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), Name: name,
		APIGroup: a.GetResource().Group, APIVersion: "*", Resource: resource, ResourceRequest: true,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to authorize", "user", a.GetUserInfo().GetName(), "verb", verb, "resource", resource, "name", name, "namespace", a.GetNamespace())
	}
	return decision == authorizer.DecisionAllow
}

// holds returns an error that lists those of the rules that a user does not hold.
func (g *guard) holds(ctx context.Context, who user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	held, incomplete := g.roles.Held(ctx, who, namespace)
	covered, missing := validation.Covers(held, rules)
	if covered {
		return nil
	}
	lines := describe(missing)
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		who.GetName(), who.GetGroups(), strings.Join(lines, "\n"))
	if incomplete != nil {
		errs := []error{incomplete}
		if several := (utilerrors.Aggregate)(nil); errors.As(incomplete, &several) {
			errs = several.Errors()
		}
		message += fmt.Sprintf("; resolution errors: %v", errs)
	}
	return errors.New(message)
}

// describe formats rules of one verb each as kube-apiserver does: sorted, with
// one line for all verbs of equal resources.
func describe(rules []rbacv1.PolicyRule) []string {
	var lines []string
	verbs := map[string][]string{}
	for _, rule := range rules {
		var parts []string
		for _, part := range []struct {
			name   string
			values []string
		}{
			{"APIGroups", rule.APIGroups}, {"Resources", rule.Resources},
			{"NonResourceURLs", rule.NonResourceURLs}, {"ResourceNames", rule.ResourceNames},
		} {
			if len(part.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
			}
		}
		what := strings.Join(parts, ", ")
		if len(rule.NonResourceURLs) > 0 {
			lines = append(lines, fmt.Sprintf("{%s, Verbs:%q}", what, rule.Verbs))
			continue
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains(verbs[what], verb) {
				verbs[what] = append(verbs[what], verb)
			}
		}
	}
	for what, verbs := range verbs {
		lines = append(lines, fmt.Sprintf("{%s, Verbs:%q}", what, verbs))
	}
	slices.Sort(lines)
	return lines
}

// OnlyGarbageCollection reports whether an update changes only the fields that
// the garbage collector writes: owner references and finalizers.
func OnlyGarbageCollection(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	same := obj.DeepCopyObject()
	into, err := meta.Accessor(same)
	if err != nil {
		return false
	}
	from, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	into.SetOwnerReferences(from.GetOwnerReferences())
	into.SetFinalizers(from.GetFinalizers())
	into.SetManagedFields(from.GetManagedFields())
	// The request may be of another version than the stored object.
	same.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	return apiequality.Semantic.DeepEqual(same, old)
}
