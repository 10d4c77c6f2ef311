// Package coordination declares the kinds of the coordination.k8s.io group.
package coordination

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the coordination.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		leases,
		leaseCandidates,
	}
}
