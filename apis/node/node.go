// Package node declares the kinds of the node.k8s.io group.
package node

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the node.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		runtimeClasses,
	}
}
