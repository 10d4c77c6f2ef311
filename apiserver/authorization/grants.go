package authorization

import (
	"context"
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Grants allow rules to users and groups, in all namespaces. On other requests
// they have no opinion, so that another authorizer may allow them.
type Grants []Grant

// Grant is the rules of one group, or of one user.
type Grant struct {
	User, Group string
	Rules       []rbacv1.PolicyRule

	// Own are rules of those members of the group whose user name begins with
	// OwnPrefix. They apply only to objects whose name is the user name without
	// that prefix: a node's rules for its own Node, for example.
	Own       []rbacv1.PolicyRule
	OwnPrefix string
}

func (g Grant) holds(who user.Info) bool {
	return g.User != "" && g.User == who.GetName() || g.Group != "" && slices.Contains(who.GetGroups(), g.Group)
}

// own returns the rules that a member has for the objects of its name.
func (g Grant) own(who user.Info) []rbacv1.PolicyRule {
	name, named := strings.CutPrefix(who.GetName(), g.OwnPrefix)
	if !named || name == "" {
		return nil
	}
	rules := slices.Clone(g.Own)
	for i := range rules {
		rules[i].ResourceNames = []string{name}
	}
	return rules
}

// Authorize implements authorizer.Authorizer.
func (g Grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for rule := range g.of(a.GetUser()) {
		if Allows(rule, a) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; no rule has
// conditions.
func (g Grants) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(g.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (g Grants) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (g Grants) RulesFor(_ context.Context, who user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	resources, paths := infos(g.of(who))
	return resources, paths, false, nil
}

// infos converts rules to the types of authorizer.RuleResolver.
func infos(rules iter.Seq[rbacv1.PolicyRule]) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo) {
	for rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
			continue
		}
		resources = append(resources, &authorizer.DefaultResourceRuleInfo{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
		})
	}
	return resources, paths
}

// of returns the rules of a user and its groups; a request without a user has none.
func (g Grants) of(who user.Info) iter.Seq[rbacv1.PolicyRule] {
	return func(yield func(rbacv1.PolicyRule) bool) {
		if who == nil {
			return
		}
		for _, grant := range g {
			if !grant.holds(who) {
				continue
			}
			for _, rules := range [][]rbacv1.PolicyRule{grant.Rules, grant.own(who)} {
				for _, rule := range rules {
					if !yield(rule) {
						return
					}
				}
			}
		}
	}
}

// Allows reports whether an RBAC rule allows a request.
func Allows(rule rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !has(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return urlMatches(url, a.GetPath()) })
	}
	return has(rule.APIGroups, a.GetAPIGroup()) &&
		slices.ContainsFunc(rule.Resources, func(r string) bool { return resourceMatches(r, a.GetResource(), a.GetSubresource()) }) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// has reports whether the list contains s or "*".
func has(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// urlMatches reports whether a rule's URL matches a path. A "*" at its end matches
// any suffix.
func urlMatches(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// resourceMatches reports whether a rule's resource matches that of a request. It
// is "pods", "pods/log", "*/scale" or "*", which matches all resources and
// subresources.
func resourceMatches(pattern, resource, subresource string) bool {
	if pattern == rbacv1.ResourceAll {
		return true
	}
	wantResource, wantSubresource, _ := strings.Cut(pattern, "/")
	return wantSubresource == subresource && (wantResource == resource || wantResource == "*" && subresource != "")
}
