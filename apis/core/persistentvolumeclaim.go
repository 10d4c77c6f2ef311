package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var persistentVolumeClaims = resource.Type[*corev1.PersistentVolumeClaim]{
	Name: "persistentvolumeclaims", ShortNames: []string{"pvc"}, Namespaced: true, ReturnDeleted: true,
	Default: defaultPersistentVolumeClaim,
	PrepareCreate: func(_ context.Context, _ *resource.Env, c *corev1.PersistentVolumeClaim) {
		prepareDataSource(&c.Spec, nil)
	},
	PrepareUpdate: func(_ context.Context, _ *resource.Env, c, old *corev1.PersistentVolumeClaim) {
		prepareDataSource(&c.Spec, &old.Spec)
	},
	Validate: func(c *corev1.PersistentVolumeClaim) field.ErrorList {
		return podspec.ValidateClaimSpec(&c.Spec, specPath)
	},
	ValidateUpdate: validatePersistentVolumeClaimUpdate,
	Warn:           warnPersistentVolumeClaim,
	Status:         true,
	ValidateStatus: validatePersistentVolumeClaimStatus,
	Columns:        persistentVolumeClaimColumns,
}

func defaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	resource.FillEmpty(&c.Status.Phase, corev1.ClaimPending)
	podspec.DefaultClaimSpec(&c.Spec)
	podspec.RoundUpToMilli(c.Status.Capacity)
	podspec.RoundUpToMilli(c.Status.AllocatedResources)
}

// prepareDataSource keeps dataSource and dataSourceRef equal. dataSource is the
// older field and may name only a claim or a snapshot; any other reference is
// dropped. A reference to another namespace is dropped, too: the server cannot
// check the permission that it needs. References that the claim has already stay.
func prepareDataSource(spec, old *corev1.PersistentVolumeClaimSpec) {
	used := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if ref := spec.DataSourceRef; ref != nil && ref.Namespace != nil && *ref.Namespace != "" && !used {
		spec.DataSourceRef = nil
	}
	if !used && spec.DataSourceRef == nil && !isVolumeOrSnapshot(spec.DataSource) {
		spec.DataSource = nil
	}
	switch source, ref := spec.DataSource, spec.DataSourceRef; {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func isVolumeOrSnapshot(source *corev1.TypedLocalObjectReference) bool {
	if source == nil {
		return false
	}
	switch group := ptr.Deref(source.APIGroup, ""); source.Kind {
	case "PersistentVolumeClaim":
		return group == ""
	case "VolumeSnapshot":
		return group == "snapshot.storage.k8s.io"
	}
	return false
}

// validatePersistentVolumeClaimUpdate allows the spec to change in these ways: the
// claim is bound, once; it gets a storage class, once, which is that of the beta
// annotation if it has one; while it is bound, its request grows or its attributes
// class changes. The annotation, which prevails over the field, may only be removed
// in the update that sets the field to its value.
func validatePersistentVolumeClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	spec, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = spec.VolumeName
	}
	class, classed := old.Annotations[corev1.BetaStorageClassAnnotation]
	annotation, annotated := c.Annotations[corev1.BetaStorageClassAnnotation]
	moved := false // from the annotation to the field
	if was.StorageClassName == nil && spec.StorageClassName != nil && (!classed || class == *spec.StorageClassName) {
		was.StorageClassName = spec.StorageClassName
		moved = classed && !annotated
	}
	if annotation != class && !moved {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation),
			annotation, apivalidation.FieldImmutableErrorMsg))
	}
	if c.Status.Phase == corev1.ClaimBound {
		if spec.Resources.Requests != nil {
			spec.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		spec.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !apiequality.Semantic.DeepEqual(spec, was) {
		errs = append(errs, field.Forbidden(specPath, fmt.Sprintf(
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(*was, *spec))))
	}
	size, oldSize := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(oldSize) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(specPath.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Status.CurrentVolumeAttributesClassName != nil {
		path := specPath.Child("volumeAttributesClassName")
		switch class := c.Spec.VolumeAttributesClassName; {
		case class == nil && old.Spec.VolumeAttributesClassName != nil:
			errs = append(errs, field.Forbidden(path, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
		case class != nil && *class == "" && !equal(class, old.Spec.VolumeAttributesClassName):
			errs = append(errs, field.Forbidden(path, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"))
		}
	}
	return errs
}

func validatePersistentVolumeClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	for _, name := range podspec.SortedNames(c.Status.Capacity) {
		if amount := c.Status.Capacity[name]; amount.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Child("capacity").Key(string(name)), amount.Value(), "must be a valid resource quantity"))
		}
	}
	for _, name := range podspec.SortedNames(c.Status.AllocatedResources) {
		path := path.Child("allocatedResources").Key(string(name))
		errs = append(errs, validateClaimResource(name, path)...)
		errs = append(errs, podspec.ValidateQuantity(name, c.Status.AllocatedResources[name], path)...)
	}
	for name, status := range c.Status.AllocatedResourceStatuses {
		path := path.Child("allocatedResourceStatuses").Key(string(name))
		errs = append(errs, validateClaimResource(name, path)...)
		errs = append(errs, resource.OneOf(path, status,
			corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
			corev1.PersistentVolumeClaimNodeResizePending)...)
	}
	return errs
}

// validateClaimResource requires storage, or a resource with a domain.
func validateClaimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := resource.Invalid(path, string(name), validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if podspec.IsNativeResource(name) {
		return resource.OneOf(path, name, corev1.ResourceStorage)
	}
	return nil
}

func warnPersistentVolumeClaim(c, _ *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.8; use "storageClassName" attribute instead`, corev1.BetaStorageClassAnnotation))
	}
	for _, list := range []struct {
		name  string
		items corev1.ResourceList
	}{{"requests", c.Spec.Resources.Requests}, {"limits", c.Spec.Resources.Limits}} {
		if amount := list.items[corev1.ResourceStorage]; amount.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				specPath.Child("resources", list.name).Key(string(corev1.ResourceStorage)), amount.String()))
		}
	}
	return warnings
}

var persistentVolumeClaimColumns = func() []resource.Column[*corev1.PersistentVolumeClaim] {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	column := func(name, description string, value func(c *corev1.PersistentVolumeClaim) string) resource.Column[*corev1.PersistentVolumeClaim] {
		return resource.Column[*corev1.PersistentVolumeClaim]{Name: name, Description: description, Value: func(c *corev1.PersistentVolumeClaim) any { return value(c) }}
	}
	bound := func(value func(c *corev1.PersistentVolumeClaim) string) func(*corev1.PersistentVolumeClaim) string {
		return func(c *corev1.PersistentVolumeClaim) string {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return value(c)
		}
	}
	return append([]resource.Column[*corev1.PersistentVolumeClaim]{
		resource.Name[*corev1.PersistentVolumeClaim](),
		column("Status", status["phase"], func(c *corev1.PersistentVolumeClaim) string { return phaseUnlessDeleted(c, string(c.Status.Phase)) }),
		column("Volume", spec["volumeName"], func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName }),
		column("Capacity", status["capacity"], bound(func(c *corev1.PersistentVolumeClaim) string { return amountOf(c.Status.Capacity) })),
		column("Access Modes", status["accessModes"], bound(func(c *corev1.PersistentVolumeClaim) string { return accessModeList(c.Status.AccessModes) })),
		column("StorageClass", "StorageClass of the pvc", func(c *corev1.PersistentVolumeClaim) string {
			return storageClass(c.Annotations, c.Spec.StorageClassName)
		}),
		resource.Since(29, column("VolumeAttributesClass", "VolumeAttributesClass of the pvc", func(c *corev1.PersistentVolumeClaim) string {
			return orUnset(c.Spec.VolumeAttributesClassName)
		})),
		resource.Age[*corev1.PersistentVolumeClaim](),
	}, resource.Wide(
		column("VolumeMode", spec["volumeMode"], func(c *corev1.PersistentVolumeClaim) string { return orUnset(c.Spec.VolumeMode) }),
	)...)
}()
