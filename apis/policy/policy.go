// Package policy declares the kinds of the policy group.
package policy

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the policy group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		podDisruptionBudgets,
		podSecurityPolicies,
	}
}
