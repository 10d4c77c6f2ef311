// Package abac owns the authorizer of the mode ABAC: policies in a file, one JSON
// object a line.
// https://kubernetes.io/docs/reference/access-authn-authz/abac
package abac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// The type of the objects in a file.
const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
)

// Policies is an authorizer that allows what one of its policies allows. On other
// requests it has no opinion.
type Policies []policy

// policy allows the requests that have all of its properties; "*" matches every value.
type policy struct {
	// User and Group are those of the requester. One of them must be set.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Readonly limits the policy to get, list and watch.
	Readonly bool `json:"readonly,omitempty"`
	// APIGroup, Resource and Namespace match resource requests.
	APIGroup  string `json:"apiGroup,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// NonResourcePath matches other requests; it may end in "*".
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// Load reads a file. Blank lines and those that begin with # are ignored. The error
// names the file and the line.
func Load(file string) (Policies, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var policies Policies
	for i, line := range bytes.Split(content, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		p, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		policies = append(policies, p)
	}
	return policies, nil
}

func parse(line []byte) (policy, error) {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       policy `json:"spec"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		return policy{}, err
	}
	if decoder.More() {
		return policy{}, errors.New("more than one object: each line must hold one")
	}
	if object.APIVersion != apiVersion || object.Kind != kind {
		return policy{}, fmt.Errorf("unsupported type: apiVersion must be %q and kind %q", apiVersion, kind)
	}
	p := object.Spec
	if p.User == "" && p.Group == "" {
		return policy{}, errors.New("spec: user or group is required")
	}
	if p.User == "*" || p.Group == "*" {
		p.User, p.Group = "", user.AllAuthenticated
	}
	return p, nil
}

// Authorize implements authorizer.Authorizer.
func (p Policies) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.ContainsFunc(p, func(p policy) bool { return p.allows(a) }) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "No policy matched.", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; no policy has conditions.
func (p Policies) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(p.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (p Policies) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (p Policies) RulesFor(_ context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	for _, policy := range p {
		if !policy.isOf(who) || !matches(policy.Namespace, namespace) {
			continue
		}
		if policy.Resource != "" {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: policy.verbs(), APIGroups: []string{policy.APIGroup}, Resources: []string{policy.Resource},
			})
		}
		if policy.NonResourcePath != "" {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: policy.verbs(), NonResourceURLs: []string{policy.NonResourcePath}})
		}
	}
	return resources, paths, false, nil
}

func (p policy) verbs() []string {
	if p.Readonly {
		return []string{"get", "list", "watch"}
	}
	return []string{"*"}
}

func (p policy) allows(a authorizer.Attributes) bool {
	if !p.isOf(a.GetUser()) || p.Readonly && !a.IsReadOnly() {
		return false
	}
	if a.IsResourceRequest() {
		return matches(p.Namespace, a.GetNamespace()) && matches(p.Resource, a.GetResource()) && matches(p.APIGroup, a.GetAPIGroup())
	}
	prefix, open := strings.CutSuffix(p.NonResourcePath, "*")
	return p.NonResourcePath == a.GetPath() || open && strings.HasPrefix(a.GetPath(), prefix)
}

// isOf reports whether the policy is one of the user.
func (p policy) isOf(who user.Info) bool {
	return who != nil && (p.User == "" || p.User == who.GetName()) && (p.Group == "" || slices.Contains(who.GetGroups(), p.Group))
}

func matches(pattern, value string) bool { return pattern == "*" || pattern == value }
