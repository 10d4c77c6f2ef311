package storage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// maxNodeID is the greatest length of a driver's name for a node.
const maxNodeID = 256

// The limits of what a driver reports of the health of its storage (CSIVolumeHealth, KEP-1432).
const (
	maxHealthConditions = 16
	maxHealthReason     = 256
	maxHealthMessage    = 1024
)

var csiNodes = resource.Type[*storagev1.CSINode]{
	Name: "csinodes", ReturnDeleted: true,
	Versions:       []resource.Version{resource.Alike[storagev1.CSINode, storagev1beta1.CSINode]()},
	Validate:       validateCSINode,
	ValidateUpdate: validateSameDrivers,
	RequireVersion: true,
	// Since 1.37; releases whose type has no status do not serve the subresource.
	Status: true, StatusOnly: true,
	ValidateStatus: func(n, _ *storagev1.CSINode) field.ErrorList { return validateStorageHealth(n.Status.StorageHealth) },
	Columns: []resource.Column[*storagev1.CSINode]{
		resource.Name[*storagev1.CSINode](),
		{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node",
			Value: func(n *storagev1.CSINode) any { return int64(len(n.Spec.Drivers)) }},
		resource.Age[*storagev1.CSINode](),
	},
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	var names []string
	for i, d := range n.Spec.Drivers {
		path := field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, validateCSINodeDriver(path, d)...)
		if slices.Contains(names, d.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		names = append(names, d.Name)
	}
	return errs
}

func validateCSINodeDriver(path *field.Path, d storagev1.CSINodeDriver) field.ErrorList {
	errs := validateCSIName(path.Child("name"), d.Name)
	if d.NodeID == "" {
		errs = append(errs, field.Required(path.Child("nodeID"), ""))
	} else if len(d.NodeID) > maxNodeID {
		errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil && d.Allocatable.Count != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*d.Allocatable.Count), path.Child("allocatable", "count"))...)
	}
	for i, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if slices.Contains(d.TopologyKeys[:i], key) {
			errs = append(errs, field.Duplicate(path, key))
		}
		errs = append(errs, resource.Invalid(path, key, validation.IsQualifiedName(key))...)
	}
	return errs
}

// validateSameDrivers forbids changes of a driver's entry, except for the number of
// volumes that it can attach.
func validateSameDrivers(n, old *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	for _, was := range old.Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if is.Name == was.Name {
				is.Allocatable, was.Allocatable = nil, nil
				errs = append(errs, apivalidation.ValidateImmutableField(is, was, field.NewPath("spec", "drivers"))...)
			}
		}
	}
	return errs
}

func validateStorageHealth(all []storagev1.StorageHealth) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, health := range all {
		path := field.NewPath("status", "storageHealth").Index(i)
		errs = append(errs, resource.Unique(path, health.Name, names)...)
		errs = append(errs, validateCSIName(path.Child("name"), health.Name)...)
		if path := path.Child("healthConditions"); len(health.HealthConditions) > maxHealthConditions {
			errs = append(errs, field.TooMany(path, len(health.HealthConditions), maxHealthConditions))
		} else {
			for i, condition := range health.HealthConditions {
				errs = append(errs, validateStorageHealthCondition(path.Index(i), condition)...)
			}
		}
	}
	return errs
}

func validateStorageHealthCondition(path *field.Path, c storagev1.StorageHealthCondition) field.ErrorList {
	errs := resource.OneOf(path.Child("status"), c.Status, storagev1.StorageDegraded, storagev1.StorageUnreachable)
	if reason := path.Child("reason"); c.Reason == "" {
		errs = append(errs, field.Required(reason, ""))
	} else {
		errs = append(errs, resource.Invalid(reason, c.Reason, metav1validation.IsValidConditionReason(c.Reason))...)
		if len(c.Reason) > maxHealthReason {
			errs = append(errs, field.TooLong(reason, c.Reason, maxHealthReason))
		}
	}
	if len(c.Message) > maxHealthMessage {
		errs = append(errs, field.TooLong(path.Child("message"), c.Message, maxHealthMessage))
	}
	errs = append(errs, resource.OptionalOneOf(path.Child("accessMode"), c.AccessMode,
		corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	return append(errs, resource.OptionalOneOf(path.Child("volumeMode"), c.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
}
