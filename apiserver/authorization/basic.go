package authorization

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Basic returns the rules that all users have without a role: those of
// Kubernetes' default roles system:public-info-viewer, system:discovery and
// system:basic-user. Anonymous users read health and version; authenticated users
// also read discovery, OpenAPI and the keys of service account tokens, and ask
// for their own user, groups and rules.
func Basic() Grants {
	return Grants{
		{Group: user.AllUnauthenticated, Rules: publicInfo()},
		{Group: user.AllAuthenticated, Rules: slices.Concat(publicInfo(), Discovery(), issuerDiscovery(), self())},
	}
}

func publicInfo() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		Verbs:           []string{"get"},
		NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"},
	}}
}

// Discovery returns the rules of Kubernetes' default role system:discovery.
func Discovery() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		Verbs:           []string{"get"},
		NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"},
	}}
}

// issuerDiscovery is for clients that verify service account tokens. Kubernetes
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

// Everything returns the rules that allow every request.
func Everything() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{
		{Verbs: all, APIGroups: all, Resources: all},
		{Verbs: all, NonResourceURLs: all},
	}
}
