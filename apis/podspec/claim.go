package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// DefaultClaimSpec sets the defaults of a claim or a claim template.
func DefaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	resource.Fill(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	RoundUpToMilli(spec.Resources.Requests)
	RoundUpToMilli(spec.Resources.Limits)
}

// ValidateClaimSpec validates the spec of a claim or a claim template.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := ValidateAccessModes(spec.AccessModes, "at least 1 access mode is required", path.Child("accessModes"))
	if spec.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	storage := path.Child("resources").Key(string(corev1.ResourceStorage))
	if request, ok := spec.Resources.Requests[corev1.ResourceStorage]; ok {
		errs = append(errs, ValidatePositive(request, storage)...)
	} else {
		errs = append(errs, field.Required(storage, ""))
	}
	if class := spec.StorageClassName; class != nil && *class != "" {
		errs = append(errs, resource.Invalid(path.Child("storageClassName"), *class, apivalidation.NameIsDNSSubdomain(*class, false))...)
	}
	errs = append(errs, resource.OptionalOneOf(path.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, validateDataSources(spec, path)...)
	if class := spec.VolumeAttributesClassName; class != nil && *class != "" {
		errs = append(errs, resource.Invalid(path.Child("volumeAttributesClassName"), *class, apivalidation.NameIsDNSSubdomain(*class, false))...)
	}
	return errs
}

func validateDataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		errs = append(errs, validateDataSource(corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}, path.Child("dataSource"))...)
	}
	if ref == nil {
		return errs
	}
	errs = append(errs, validateDataSource(*ref, path.Child("dataSourceRef"))...)
	foreign := ref.Namespace != nil && *ref.Namespace != ""
	if foreign {
		errs = append(errs, resource.Invalid(path.Child("dataSourceRef", "namespace"), *ref.Namespace, apivalidation.ValidateNamespaceName(*ref.Namespace, false))...)
	}
	switch {
	case source == nil:
	case foreign:
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "may not be specified when dataSourceRef.namespace is specified"))
	case ptr.Deref(source.APIGroup, "") != ptr.Deref(ref.APIGroup, "") || source.Kind != ref.Kind || source.Name != ref.Name:
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(ref corev1.TypedObjectReference, path *field.Path) field.ErrorList {
	errs := append(resource.Required(path.Child("name"), ref.Name), resource.Required(path.Child("kind"), ref.Kind)...)
	group := ptr.Deref(ref.APIGroup, "")
	if group != "" {
		return append(errs, resource.Invalid(path.Child("apiGroup"), group, validation.IsDNS1123Subdomain(group))...)
	}
	if ref.Kind != "PersistentVolumeClaim" {
		errs = append(errs, field.Invalid(path, ref.Kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// ValidateAccessModes requires at least one access mode, known ones only, and
// ReadWriteOncePod only by itself. requiredMsg is the detail of the error for a missing mode.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, requiredMsg string, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, requiredMsg)}
	}
	var errs field.ErrorList
	onePod, others := false, false
	for _, mode := range modes {
		bad := resource.OneOf(path, mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		onePod = onePod || mode == corev1.ReadWriteOncePod
		others = others || (mode != corev1.ReadWriteOncePod && len(bad) == 0)
	}
	if onePod && others {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}
