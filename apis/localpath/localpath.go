// Package localpath owns the names by which the provisioner of local volumes, the node
// agents and the API server agree on directories of nodes that are volumes.
//
// The provisioner makes a PersistentVolume of type local. Its path is a directory,
// named after the volume, below the one that the node's agent has for volumes. The
// agent creates the directory when it first mounts the volume, and removes it when
// the volume is deleted: then it removes the volume's finalizer.
package localpath

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Provisioner is the provisioner's name in storage classes.
	Provisioner = "svc.dev/local-path"
	// DirectoryAnnotation is the annotation of a Node with the directory in which its
	// agent has the directories of volumes.
	DirectoryAnnotation = "svc.dev/local-volumes"
	// NodeLabel is the label of a volume with the name of its node, which may watch
	// volumes with it.
	NodeLabel = "svc.dev/local-volume-node"
	// Finalizer keeps a volume until the agent has removed its directory.
	Finalizer = "svc.dev/local-path"

	// protection is the finalizer of volumes that are bound to a claim.
	protection = "kubernetes.io/pv-protection"
)

// Made reports whether the provisioner has made a volume.
func Made(pv *corev1.PersistentVolume) bool {
	return pv.Annotations["pv.kubernetes.io/provisioned-by"] == Provisioner && pv.Spec.Local != nil
}

// Directory returns the directory of a volume below the one for all volumes of a node.
func Directory(all, volume string) string { return path.Join(all, volume) }

// Removable reports whether the directory of a volume that is being deleted may be
// removed: only the agent's finalizer is left, so that no claim is bound to it.
func Removable(pv *corev1.PersistentVolume) bool {
	return pv.DeletionTimestamp != nil && slices.Contains(pv.Finalizers, Finalizer) && !slices.Contains(pv.Finalizers, protection)
}
