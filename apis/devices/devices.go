// Package devices declares the kinds of the resource.k8s.io group, which allocates
// devices to pods.
package devices

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the resource.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		deviceClasses,
		resourceClaims,
		resourceClaimTemplates,
		resourceSlices,
		deviceTaintRules,
		poolStatusRequests,
	}
}
