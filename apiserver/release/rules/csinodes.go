package rules

import (
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// attachable is the number of volumes that a CSI driver of a node can attach. It does not change,
// nor does anything else in the driver's entry, whose errors replace those of package apis.
func attachable(obj, old runtime.Object) field.ErrorList {
	n, ok := obj.(*storagev1.CSINode)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	for _, was := range old.(*storagev1.CSINode).Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if is.Name == was.Name {
				errs = append(errs, apivalidation.ValidateImmutableField(is, was, spec.Child("drivers"))...)
			}
		}
	}
	return errs
}
