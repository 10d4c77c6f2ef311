package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// DefaultPersistentVolumeClaimSpec fills the unset fields of a claim's spec,
// be it a claim's or that of a template.
func DefaultPersistentVolumeClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	resource.Fill(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUpToMilli(spec.Resources.Limits)
	roundUpToMilli(spec.Resources.Requests)
}

// ValidatePersistentVolumeClaimSpec judges a claim's spec; path is the spec's.
func ValidatePersistentVolumeClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validateClaimAccess(spec.AccessModes, path.Child("accessModes")),
		metav1validation.ValidateLabelSelector(spec.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector")),
		validateClaimedStorage(spec.Resources.Requests, path.Child("resources").Key(string(corev1.ResourceStorage))))
	if spec.VolumeMode != nil {
		errs = slices.Concat(errs, resource.OneOf(path.Child("volumeMode"), *spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem))
	}
	for name, class := range map[string]*string{"storageClassName": spec.StorageClassName, "volumeAttributesClassName": spec.VolumeAttributesClassName} {
		if ptr.Deref(class, "") != "" {
			errs = slices.Concat(errs, resource.Invalid(path.Child(name), *class, apivalidation.NameIsDNSSubdomain(*class, false)))
		}
	}
	return slices.Concat(errs, validateDataSources(spec, path))
}

func validateClaimAccess(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	others := false
	for _, mode := range modes {
		unknown := resource.OneOf(path, mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = slices.Concat(errs, unknown)
		others = others || mode != corev1.ReadWriteOncePod && len(unknown) == 0
	}
	if others && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// validateClaimedStorage requires an amount of storage.
func validateClaimedStorage(requests corev1.ResourceList, path *field.Path) field.ErrorList {
	amount, found := requests[corev1.ResourceStorage]
	if !found {
		return field.ErrorList{field.Required(path, "")}
	}
	if amount.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than zero")}
	}
	return nil
}

// validateDataSources judges what a volume is filled with, which has two
// fields: the older one has no namespace, and both agree.
func validateDataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	source, ref := spec.DataSource, spec.DataSourceRef
	var errs field.ErrorList
	if source != nil {
		errs = validateDataSource(source.APIGroup, source.Kind, source.Name, path.Child("dataSource"))
	}
	if ref == nil {
		return errs
	}
	errs = slices.Concat(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef")))
	namespace := ptr.Deref(ref.Namespace, "")
	if namespace != "" {
		errs = slices.Concat(errs, resource.Invalid(path.Child("dataSourceRef", "namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false)))
	}
	switch {
	case source == nil:
	case namespace != "":
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "may not be specified when dataSourceRef.namespace is specified"))
	case !apiequality.Semantic.DeepEqual(source, &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}):
		errs = append(errs, field.Invalid(path, path.Child("dataSource").String(), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, path *field.Path) field.ErrorList {
	errs := slices.Concat(mustBeSet(path.Child("name"), name), mustBeSet(path.Child("kind"), kind))
	switch g := ptr.Deref(group, ""); {
	case g != "":
		errs = slices.Concat(errs, resource.Invalid(path.Child("apiGroup"), g, validation.IsDNS1123Subdomain(g)))
	case kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}
