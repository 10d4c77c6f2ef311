// Package discovery declares the kinds of the discovery.k8s.io group.
package discovery

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the discovery.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		endpointSlices,
	}
}
