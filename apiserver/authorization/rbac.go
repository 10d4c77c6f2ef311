package authorization

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// Roles is the authorizer of the mode RBAC: it allows the rules of the roles that
// are bound to a user or one of its groups, and the grants to components. On
// other requests it has no opinion.
// https://kubernetes.io/docs/reference/access-authn-authz/rbac
type Roles struct {
	components Grants
	source     roleSource
}

// Follow sets the informers from which roles and bindings are read. It is called
// before all other methods.
func (r *Roles) Follow(informers rbacinformers.Interface) {
	r.source = followed{
		informers.Roles().Lister(), informers.RoleBindings().Lister(),
		informers.ClusterRoles().Lister(), informers.ClusterRoleBindings().Lister(),
	}
}

// AwaitRoles waits until the authorizer knows cluster roles and bindings of these names, or ctx
// is done. What was just written reaches the informers a moment later.
func (r *Roles) AwaitRoles(ctx context.Context, roles []DefaultRole) {
	known := func(ctx context.Context) (bool, error) {
		bindings, err := r.source.clusterRoleBindings(ctx)
		if err != nil {
			return false, nil
		}
		bound := sets.New[string]()
		for _, b := range bindings {
			bound.Insert(b.Name)
		}
		for _, role := range roles {
			if role.Namespace != "" {
				continue
			}
			if _, err := r.source.clusterRole(ctx, role.Name); err != nil || role.Binding != "" && !bound.Has(role.Binding) {
				return false, nil
			}
		}
		return true, nil
	}
	_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, known) // at the end of ctx, the start goes on
}

// Stored returns an authorizer that reads the same roles and bindings from the API
// for each request, so that it sees the newest. It suits rare requests.
func (r *Roles) Stored(client rbacv1client.RbacV1Interface) *Roles {
	return &Roles{components: r.components, source: stored{client}}
}

// Authorize implements authorizer.Authorizer. The reason of a decision is in audit
// events and in CEL's authorization checks. The union puts the name of the mode
// before reasons of refusals, and leaves those of permissions as they are.
func (r *Roles) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var errs []error
	for rule, err := range r.of(ctx, a.GetUser(), a.GetNamespace()) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case Allows(rule.PolicyRule, a):
			return authorizer.DecisionAllow, "RBAC: allowed by " + rule.source(), nil
		}
	}
	if len(errs) > 0 { // for example a binding to a role that does not exist yet
		return authorizer.DecisionNoOpinion, utilerrors.NewAggregate(errs).Error(), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; no rule has
// conditions.
func (r *Roles) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (r *Roles) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (r *Roles) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := r.Held(ctx, who, namespace)
	resources, paths := infos(slices.Values(rules))
	return resources, paths, false, err
}

// Held returns all rules of a user in a namespace. If the namespace is empty, it
// returns those that apply in all namespaces. If roles are not found, it returns
// the rules of the others and an error.
func (r *Roles) Held(ctx context.Context, who user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var held []rbacv1.PolicyRule
	var errs []error
	for rule, err := range r.of(ctx, who, namespace) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		held = append(held, rule.PolicyRule)
	}
	return held, utilerrors.NewAggregate(errs)
}

// Rules returns the rules of the role that a binding in the namespace refers to,
// or the error NotFound.
func (r *Roles) Rules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := r.source.role(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := r.source.clusterRole(ctx, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// boundRule is a rule that a user has, and the binding that it comes from.
type boundRule struct {
	rbacv1.PolicyRule
	binding
}

// binding is what a RoleBinding or, if namespace is empty, a ClusterRoleBinding
// says of one user. The grants to components have no name.
type binding struct {
	namespace, name string
	role            rbacv1.RoleRef
	subject         rbacv1.Subject
}

// source describes the binding.
func (b binding) source() string {
	switch {
	case b.name == "":
		return "the rules of the component"
	case b.namespace == "":
		return fmt.Sprintf("ClusterRoleBinding %q of %s %q to %s", b.name, b.role.Kind, b.role.Name, b.holder())
	}
	return fmt.Sprintf("RoleBinding %q of %s %q to %s", b.name+"/"+b.namespace, b.role.Kind, b.role.Name, b.holder())
}

// holder describes the subject of the binding that is the user.
func (b binding) holder() string {
	if b.subject.Kind != rbacv1.ServiceAccountKind {
		return fmt.Sprintf("%s %q", b.subject.Kind, b.subject.Name)
	}
	namespace := b.subject.Namespace
	if namespace == "" {
		namespace = b.namespace
	}
	return fmt.Sprintf("%s %q", b.subject.Kind, b.subject.Name+"/"+namespace)
}

// of yields the rules of a user, and an error for each role that is not found. A
// request without a user has no rules.
func (r *Roles) of(ctx context.Context, who user.Info, namespace string) iter.Seq2[boundRule, error] {
	return func(yield func(boundRule, error) bool) {
		if who == nil {
			return
		}
		for rule := range r.components.of(who) {
			if !yield(boundRule{PolicyRule: rule}, nil) {
				return
			}
		}
		for b, err := range r.bound(ctx, who, namespace) {
			var rules []rbacv1.PolicyRule
			if err == nil {
				rules, err = r.Rules(ctx, b.role, namespace)
			}
			if err != nil && !yield(boundRule{}, err) {
				return
			}
			for _, rule := range rules {
				if !yield(boundRule{rule, b}, nil) {
					return
				}
			}
		}
	}
}

// bound yields the user's bindings.
func (r *Roles) bound(ctx context.Context, who user.Info, namespace string) iter.Seq2[binding, error] {
	return func(yield func(binding, error) bool) {
		everywhere, err := r.source.clusterRoleBindings(ctx)
		if err != nil && !yield(binding{}, err) {
			return
		}
		for _, b := range everywhere {
			if i := subjectOf(who, b.Subjects, ""); i >= 0 && !yield(binding{"", b.Name, b.RoleRef, b.Subjects[i]}, nil) {
				return
			}
		}
		if namespace == "" {
			return
		}
		here, err := r.source.roleBindings(ctx, namespace)
		if err != nil && !yield(binding{}, err) {
			return
		}
		for _, b := range here {
			if i := subjectOf(who, b.Subjects, namespace); i >= 0 && !yield(binding{namespace, b.Name, b.RoleRef, b.Subjects[i]}, nil) {
				return
			}
		}
	}
}

// subjectOf returns the index of the first of a binding's subjects that is the user
// or one of its groups, or -1. namespace is the binding's, the default of a service
// account's.
func subjectOf(who user.Info, subjects []rbacv1.Subject, namespace string) int {
	return slices.IndexFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.UserKind:
			return s.Name == who.GetName()
		case rbacv1.GroupKind:
			return slices.Contains(who.GetGroups(), s.Name)
		case rbacv1.ServiceAccountKind:
			of := s.Namespace
			if of == "" {
				of = namespace
			}
			return of != "" && serviceaccount.MatchesUsername(of, s.Name, who.GetName())
		}
		return false
	})
}
