// Package reviews declares the questions that clients put to the server about
// identity and permission: who owns this token, who am I, may this user do
// that. They are virtual kinds: posted, answered, never stored.
package reviews

import (
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apis/resource"
)

// Kinds are the kinds of authentication.k8s.io and authorization.k8s.io.
//
// The access reviews are answered by decide, the rules review by rules, and
// token reviews by identify, of which a token must be valid for one of the
// audiences that the review names (by default those given here; none means
// that audiences are not checked).
func Kinds(decide authorizer.UnconditionalAuthorizer, rules authorizer.RuleResolver, identify authenticator.Request, audiences authenticator.Audiences) []resource.Declaration {
	return []resource.Declaration{
		tokenReviews(identify, audiences),
		selfSubjectReviews(),
		subjectAccessReviews(decide),
		selfSubjectAccessReviews(decide),
		localSubjectAccessReviews(decide),
		selfSubjectRulesReviews(rules),
	}
}
