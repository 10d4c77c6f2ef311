// Package authorization declares the kinds of authorization.k8s.io, which report
// what a user may do.
package authorization

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of authorization.k8s.io. They are virtual: posted,
// answered and not stored.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		subjectAccessReviews,
		selfSubjectAccessReviews,
		localSubjectAccessReviews,
		selfSubjectRulesReviews,
	}
}
