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

// Grants allow users and groups what their rules say, in all namespaces. On everything
// else they have no opinion, so that another authorizer may allow it.
type Grants []Grant

// Grant is the rules of one group, or of one user.
type Grant struct {
	User, Group string
	Rules       []rbacv1.PolicyRule

	// Own are rules of members of the group whose names begin with OwnPrefix;
	// each holds for objects that have the rest of the member's name.
	Own       []rbacv1.PolicyRule
	OwnPrefix string
}

func (g Grant) holds(who user.Info) bool {
	return g.User != "" && g.User == who.GetName() || g.Group != "" && slices.Contains(who.GetGroups(), g.Group)
}

// own are the rules of a member that hold for objects of its name.
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

// infos are rules as a RuleResolver gives them.
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

// of are the rules of the user and his groups. A request without a user has none.
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

// Allows reports whether an RBAC rule allows what is asked.
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

// has reports whether the list, in which "*" stands for everything, has s.
func has(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// urlMatches compares a path with a rule's, of which a "*" at the end stands
// for any rest.
func urlMatches(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// resourceMatches compares a resource with a rule's: "pods", "pods/log",
// "*/scale" or "*", which stands for all resources and subresources.
func resourceMatches(pattern, resource, subresource string) bool {
	if pattern == rbacv1.ResourceAll {
		return true
	}
	wantResource, wantSubresource, _ := strings.Cut(pattern, "/")
	return wantSubresource == subresource && (wantResource == resource || wantResource == "*" && subresource != "")
}
