// Package authentication declares the kinds of authentication.k8s.io, which
// report who a token or a request belongs to.
package authentication

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of authentication.k8s.io. They are virtual: posted,
// answered and not stored.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		tokenReviews,
		selfSubjectReviews,
	}
}
