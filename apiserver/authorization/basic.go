package authorization

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Basic is what everybody may do, without any role: the default roles
// system:public-info-viewer, system:discovery and system:basic-user of
// Kubernetes. Anonymous users see health and version; authenticated users
// also what the server offers (discovery, OpenAPI), by which keys it signs
// tokens, and who they are and what they may do.
func Basic() Grants {
	return Grants{
		{Group: user.AllUnauthenticated, Rules: publicInfo()},
		{Group: user.AllAuthenticated, Rules: slices.Concat(publicInfo(), discovery(), issuerDiscovery(), self())},
	}
}

// DefaultRole is a cluster role that is there from the start of the mode RBAC,
// and the groups that are bound to it.
type DefaultRole struct {
	Name   string
	Groups []string
	Rules  []rbacv1.PolicyRule
}

// DefaultRoles are those of Kubernetes that say what Basic does without roles,
// and the administrator's.
func DefaultRoles() []DefaultRole {
	return []DefaultRole{
		{"cluster-admin", []string{user.SystemPrivilegedGroup}, everything()},
		{"system:public-info-viewer", []string{user.AllAuthenticated, user.AllUnauthenticated}, publicInfo()},
		{"system:discovery", []string{user.AllAuthenticated}, []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: slices.Sorted(slices.Values(slices.Concat(publicInfo()[0].NonResourceURLs, discovery()[0].NonResourceURLs)))}}},
		{"system:basic-user", []string{user.AllAuthenticated}, self()},
		{"system:service-account-issuer-discovery", []string{serviceaccount.AllServiceAccountsGroup}, issuerDiscovery()},
	}
}

func publicInfo() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		Verbs:           []string{"get"},
		NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"},
	}}
}

func discovery() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		Verbs:           []string{"get"},
		NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"},
	}}
}

// issuerDiscovery is for those who check service account tokens. Kubernetes
// allows it to service accounts.
func issuerDiscovery() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		Verbs:           []string{"get"},
		NonResourceURLs: []string{"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"},
	}}
}

func self() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			Verbs:     []string{"create"},
			APIGroups: []string{"authorization.k8s.io"},
			Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
		},
		{
			Verbs:     []string{"create"},
			APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{"selfsubjectreviews"},
		},
	}
}

func everything() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{
		{Verbs: all, APIGroups: all, Resources: all},
		{Verbs: all, NonResourceURLs: all},
	}
}
