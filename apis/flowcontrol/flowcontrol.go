// Package flowcontrol declares the kinds of the flowcontrol.apiserver.k8s.io group.
package flowcontrol

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the flowcontrol.apiserver.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		flowSchemas,
		priorityLevels,
	}
}
