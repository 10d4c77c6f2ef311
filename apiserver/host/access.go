package host

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/internal/fleetaddress"
)

// access authorizes requests by the host's decision. A resource is authorized by its
// name in the domain, whatever address the request came to; the host's
// namespaces by their own.
type access struct {
	host  authorizer.Authorizer
	names *groupdomain.Names
	fleet string
	// served are the namespaces that the fleet serves; empty for all.
	served     []string
	namespaced func(schema.GroupResource) bool
}

var _ authorization.Authorizer = &access{}

// always are paths that every client may read: probes, and what the host's aggregator
// reads in its own name.
var always = []string{"/healthz", "/livez", "/readyz"}

// aggregator is the user by which the host's aggregator reads OpenAPI documents.
const aggregator = "system:aggregator"

// Authorize implements authorizer.Authorizer.
func (a *access) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	who := attributes.GetUser()
	if who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	if !attributes.IsResourceRequest() {
		path := attributes.GetPath()
		if slices.ContainsFunc(always, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }) {
			return authorizer.DecisionAllow, "", nil
		}
		if who != nil && who.GetName() == aggregator && strings.HasPrefix(path, "/openapi/") {
			return authorizer.DecisionAllow, "", nil
		}
	}
	// A request has a path. What a request is about, such as the user whom an agent of the
	// fleet asks about in a SubjectAccessReview, need not be allowed at this address.
	if groupdomain.UnderStoredNames(ctx) && attributes.GetPath() != "" {
		// The host has decided this for a request that it forwarded. A client that
		// connects directly comes without its decision.
		decision, reason, err := a.host.Authorize(ctx, address{attributes, a.names, a.fleet})
		if decision != authorizer.DecisionAllow {
			return decision, reason, err
		}
	}
	if !attributes.IsResourceRequest() || a.names.OfHost(attributes.GetAPIGroup(), attributes.GetResource()) {
		return a.host.Authorize(ctx, attributes)
	}
	inDomain := named{attributes, a.names.Public(attributes.GetAPIGroup())}
	decision, reason, err := a.host.Authorize(ctx, inDomain)
	if decision == authorizer.DecisionAllow || err != nil || !a.readsAllNamespaces(attributes) {
		return decision, reason, err
	}
	// All namespaces of the fleet are those that it serves.
	for _, namespace := range a.served {
		if each, _, err := a.host.Authorize(ctx, within{inDomain, namespace}); err != nil || each != authorizer.DecisionAllow {
			return decision, reason, err
		}
	}
	return authorizer.DecisionAllow, "", nil
}

// readsAllNamespaces reports whether a request reads the objects of all namespaces of a
// fleet that serves some of the host's.
func (a *access) readsAllNamespaces(attributes authorizer.Attributes) bool {
	verb := attributes.GetVerb()
	return len(a.served) > 0 && (verb == "list" || verb == "watch") && attributes.GetNamespace() == "" &&
		a.namespaced(schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()})
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a *access) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements authorizer.Authorizer.
func (a *access) EvaluateConditions(ctx context.Context, decision authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return a.host.EvaluateConditions(ctx, decision, data)
}

// errRules is what a SelfSubjectRulesReview is answered with. Only the caller can ask the
// host for its own rules: the server could not without a right to impersonate every user.
var errRules = errors.New("the host decides what users may do in a fleet: run 'kubectl auth can-i --list' with a kubeconfig of the host, " +
	"which lists rights in the names of the domain, or ask about one with 'kubectl auth can-i VERB RESOURCE'")

// RulesFor implements authorizer.RuleResolver.
func (a *access) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, true, errRules
}

// named are the attributes of a request for a resource in the names of the domain.
type named struct {
	authorizer.Attributes
	group string
}

// GetAPIGroup implements authorizer.Attributes.
func (n named) GetAPIGroup() string { return n.group }

// within are the attributes of a request for a resource of one namespace.
type within struct {
	authorizer.Attributes
	namespace string
}

// GetNamespace implements authorizer.Attributes.
func (w within) GetNamespace() string { return w.namespace }

// address are the attributes of a request to the fleet's own address.
type address struct {
	authorizer.Attributes
	names *groupdomain.Names
	fleet string
}

// IsResourceRequest implements authorizer.Attributes.
func (address) IsResourceRequest() bool { return true }

// GetAPIGroup implements authorizer.Attributes.
func (a address) GetAPIGroup() string { return a.names.FleetGroup() }

// GetAPIVersion implements authorizer.Attributes.
func (address) GetAPIVersion() string { return fleetaddress.Version }

// GetResource implements authorizer.Attributes.
func (address) GetResource() string { return fleetaddress.Resource }

// GetSubresource implements authorizer.Attributes.
func (address) GetSubresource() string { return "proxy" }

// GetName implements authorizer.Attributes.
func (a address) GetName() string { return a.fleet }

// GetNamespace implements authorizer.Attributes.
func (address) GetNamespace() string { return "" }

// GetVerb implements authorizer.Attributes: the host takes the verb from the method of
// the request.
func (a address) GetVerb() string {
	switch verb := a.Attributes.GetVerb(); verb {
	case "list", "watch", "head", "options":
		return "get"
	case "deletecollection":
		return "delete"
	case "post":
		return "create"
	case "put":
		return "update"
	default:
		return verb
	}
}
