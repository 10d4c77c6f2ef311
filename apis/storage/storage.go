// Package storage declares the kinds of the storage.k8s.io group.
package storage

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the storage.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		storageClasses,
		volumeAttachments,
		csiNodes,
		csiDrivers,
		csiStorageCapacities,
		volumeAttributesClasses,
	}
}
