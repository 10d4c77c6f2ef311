// Package core declares the kinds of the core group.
package core

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the core group and of events.k8s.io, whose Event is
// the core group's.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		bindings,
		componentStatuses,
		configMaps,
		endpoints,
		events,
		limitRanges,
		namespaces,
		nodes,
		persistentVolumeClaims,
		persistentVolumes,
		pods,
		podTemplates,
		replicationControllers,
		resourceQuotas,
		secrets,
		serviceAccounts,
		services,
	}
}
