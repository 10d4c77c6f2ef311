// Package volumespec owns the defaults and the validation of the specs of persistent
// volumes, which PersistentVolumes and VolumeAttachments have.
package volumespec

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// volume is a spec that is validated, with its path and the name of its volume,
// which is empty for an inline one.
type volume struct {
	*corev1.PersistentVolumeSpec
	path *field.Path
	name string
}

// Validate validates the defaulted spec of a named volume; path is the spec's.
func Validate(spec *corev1.PersistentVolumeSpec, name string, path *field.Path) field.ErrorList {
	v := &volume{spec, path, name}
	errs := podspec.ValidateAccessModes(v.AccessModes, "", path.Child("accessModes"))
	errs = append(errs, validateCapacity(v.Capacity, path.Child("capacity"))...)
	errs = append(errs, resource.OneOf(path.Child("persistentVolumeReclaimPolicy"), v.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	errs = append(errs, v.validateNodeAffinity()...)
	errs = append(errs, v.validateSource()...)
	errs = append(errs, v.validateRecycling()...)
	if v.StorageClassName != "" {
		errs = append(errs, resource.Invalid(path.Child("storageClassName"), v.StorageClassName, apivalidation.NameIsDNSSubdomain(v.StorageClassName, false))...)
	}
	errs = append(errs, resource.OptionalOneOf(path.Child("volumeMode"), v.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	return append(errs, v.validateAttributesClass()...)
}

// ValidateInline validates the spec of a volume that no PersistentVolume has, as in
// a VolumeAttachment; path is the spec's. It is of a CSI driver, and has no field
// that is for binding or provisioning.
func ValidateInline(spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	const forbidden = "may not be specified in the context of inline volumes"
	v := &volume{spec, path, ""}
	var errs field.ErrorList
	if v.ClaimRef != nil {
		errs = append(errs, field.Forbidden(path.Child("claimRef"), forbidden))
	}
	if len(v.Capacity) > 0 {
		errs = append(errs, field.Forbidden(path.Child("capacity"), forbidden))
	}
	if v.CSI == nil {
		errs = append(errs, field.Required(path.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	errs = append(errs, podspec.ValidateAccessModes(v.AccessModes, "", path.Child("accessModes"))...)
	if policy := v.PersistentVolumeReclaimPolicy; policy != "" && policy != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(path.Child("persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes"))
	}
	if v.NodeAffinity != nil {
		errs = append(errs, field.Forbidden(path.Child("nodeAffinity"), forbidden))
	}
	errs = append(errs, v.validateSource()...)
	errs = append(errs, v.validateRecycling()...)
	if v.StorageClassName != "" {
		errs = append(errs, field.Forbidden(path.Child("storageClassName"), forbidden))
	}
	if v.VolumeMode != nil && *v.VolumeMode != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(path.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
	}
	return errs
}

func (v *volume) validateNodeAffinity() field.ErrorList {
	if v.NodeAffinity == nil {
		return nil
	}
	path := v.path.Child("nodeAffinity", "required")
	if v.NodeAffinity.Required == nil {
		return field.ErrorList{field.Required(path, "must specify required node constraints")}
	}
	return podspec.ValidateNodeSelector(v.NodeAffinity.Required, path)
}

func (v *volume) validateRecycling() field.ErrorList {
	if v.HostPath != nil && path.Clean(v.HostPath.Path) == "/" && v.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		return field.ErrorList{field.Forbidden(v.path.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")}
	}
	return nil
}

func (v *volume) validateAttributesClass() field.ErrorList {
	class := v.VolumeAttributesClassName
	if class == nil {
		return nil
	}
	var errs field.ErrorList
	path := v.path.Child("volumeAttributesClassName")
	if *class == "" {
		errs = append(errs, field.Required(path, "an empty string is disallowed"))
	} else {
		errs = append(errs, resource.Invalid(path, *class, apivalidation.NameIsDNSSubdomain(*class, false))...)
	}
	if v.CSI == nil {
		errs = append(errs, field.Required(v.path.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

func validateCapacity(capacity corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(capacity) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		errs = append(errs, field.NotSupported(path, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range podspec.SortedNames(capacity) {
		amount, at := capacity[name], path.Key(string(name))
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(at, amount.Value(), "must be a valid resource quantity"))
		}
		errs = append(errs, podspec.ValidatePositive(amount, at)...)
	}
	return errs
}
