package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var csiStorageCapacities = resource.Type[*storagev1.CSIStorageCapacity]{
	Name: "csistoragecapacities", Namespaced: true,
	Versions: []resource.Version{resource.Alike[storagev1.CSIStorageCapacity, storagev1beta1.CSIStorageCapacity](), resource.Alike[storagev1.CSIStorageCapacity, storagev1alpha1.CSIStorageCapacity]()},
	Validate: func(c *storagev1.CSIStorageCapacity) field.ErrorList {
		errs := metav1validation.ValidateLabelSelector(c.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("nodeTopology"))
		errs = append(errs, resource.Invalid(field.NewPath("storageClassName"), c.StorageClassName, apivalidation.NameIsDNSSubdomain(c.StorageClassName, false))...)
		if c.Capacity != nil && c.Capacity.Sign() < 0 {
			errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), apivalidation.IsNegativeErrorMsg))
		}
		return errs
	},
	ValidateUpdate: func(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
		errs := apivalidation.ValidateImmutableField(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))
		return append(errs, apivalidation.ValidateImmutableField(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
	},
	Warn: func(c, _ *storagev1.CSIStorageCapacity) []string {
		return podspec.WarnLabelSelector(c.NodeTopology, field.NewPath("nodeTopology"))
	},
	RequireVersion: true,
}
