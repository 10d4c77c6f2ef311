package localpathprovisioner

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/localpath"
)

// provision returns the volume for a claim on the node that was selected for it,
// without its claim reference, or why there can be none.
func provision(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) (*corev1.PersistentVolume, error) {
	directory := node.Annotations[localpath.DirectoryAnnotation]
	hostname := node.Labels[corev1.LabelHostname]
	other := func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod
	}
	switch {
	case slices.ContainsFunc(claim.Spec.AccessModes, other):
		return nil, fmt.Errorf("unsupported access mode: a directory of a node can be %s or %s", corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return nil, fmt.Errorf("unsupported volumeMode %s: a directory of a node is a %s", *claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	case claim.Spec.Selector != nil:
		return nil, fmt.Errorf("claim.spec.selector is not supported for new volumes: remove it, or create a volume that it matches")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return nil, fmt.Errorf("claim.spec.dataSource is not supported: new volumes are empty")
	case len(class.MountOptions) > 0 || len(class.Parameters) > 0:
		return nil, fmt.Errorf("storage class %q: mountOptions and parameters are not supported", class.Name)
	case directory == "":
		return nil, fmt.Errorf("node %q has no annotation %s: its agent, which must be svclet, has no directory for volumes", node.Name, localpath.DirectoryAnnotation)
	case !path.IsAbs(directory):
		return nil, fmt.Errorf("node %q: annotation %s: %q is not an absolute path", node.Name, localpath.DirectoryAnnotation, directory)
	case hostname == "":
		return nil, fmt.Errorf("node %q has no label %s", node.Name, corev1.LabelHostname)
	case len(validation.IsValidLabelValue(node.Name)) > 0:
		return nil, fmt.Errorf("the name of node %q cannot be the value of a label: it is longer than %d characters", node.Name, validation.LabelValueMaxLength)
	}
	name := volumeName(claim)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{localpath.NodeLabel: node.Name}, Finalizers: []string{localpath.Finalizer},
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: localpath.Provisioner, volume.AnnBoundByController: "yes"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:              class.Name,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localpath.Directory(directory, name)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}}},
			}}}},
		},
	}, nil
}

// volumeName is the name of the volume of a claim, so that a claim gets one volume even
// if the provisioner is interrupted.
func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// action is what to do with a volume of the provisioner.
type action string

const (
	keep   action = "keep"
	remove action = "delete the volume"
	// abandon is for a volume whose node, and with it the directory, has gone.
	abandon action = "remove the finalizer if the node has gone"
)

// decide returns what to do with a volume: a released one is deleted, and its node's
// agent removes the directory and then the finalizer.
func decide(pv *corev1.PersistentVolume) action {
	switch {
	case localpath.Removable(pv):
		return abandon
	case pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return remove
	}
	return keep
}

// classOf returns the storage class to create.
func classOf(name string, isDefault bool) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: name},
		Provisioner:       localpath.Provisioner,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		// The size of a directory is not limited.
		AllowVolumeExpansion: new(true),
	}
	if isDefault {
		class.Annotations = map[string]string{defaultAnnotation: "true"}
	}
	return class
}

// defaultAnnotation is the annotation of a default class.
const defaultAnnotation = "storageclass.kubernetes.io/is-default-class"
