// Package networking declares the kinds of the networking.k8s.io group.
package networking

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the networking.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		ingresses,
		ingressClasses,
		networkPolicies,
		serviceCIDRs,
		ipAddresses,
	}
}
