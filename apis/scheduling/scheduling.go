// Package scheduling declares the kinds of the scheduling.k8s.io group.
package scheduling

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the scheduling.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		priorityClasses,
		workloads,
		podGroups,
		compositePodGroups,
	}
}
