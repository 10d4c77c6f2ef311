package storage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// The greatest number of a class' parameters, and of the bytes of their keys
// and values together.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

var storageClasses = resource.Type[*storagev1.StorageClass]{
	Name: "storageclasses", ShortNames: []string{"sc"}, ReturnDeleted: true,
	Versions: []resource.Version{resource.Alike[storagev1.StorageClass, storagev1beta1.StorageClass]()},
	Default: func(c *storagev1.StorageClass) {
		resource.Fill(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		resource.Fill(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	},
	Validate:       validateStorageClass,
	ValidateUpdate: validateStorageClassUpdate,
	Warn:           warnStorageClass,
	Columns: []resource.Column[*storagev1.StorageClass]{
		{Name: "Name", Format: "name", Description: resource.Name[*storagev1.StorageClass]().Description, Value: classNameCell},
		{Name: "Provisioner", Description: classDoc["provisioner"], Value: func(c *storagev1.StorageClass) any { return c.Provisioner }},
		{Name: "ReclaimPolicy", Description: classDoc["reclaimPolicy"], Value: func(c *storagev1.StorageClass) any { return string(*c.ReclaimPolicy) }},
		{Name: "VolumeBindingMode", Description: classDoc["volumeBindingMode"], Value: func(c *storagev1.StorageClass) any { return string(*c.VolumeBindingMode) }},
		{Name: "AllowVolumeExpansion", Description: classDoc["allowVolumeExpansion"], Value: func(c *storagev1.StorageClass) any { return isTrue(c.AllowVolumeExpansion) }},
		resource.Age[*storagev1.StorageClass](),
	},
}

var classDoc = storagev1.StorageClass{}.SwaggerDoc()

// classNameCell marks the default class, by the annotation or its beta name.
func classNameCell(c *storagev1.StorageClass) any {
	if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true" {
		return c.Name + " (default)"
	}
	return c.Name
}

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateDriver(field.NewPath("provisioner"), c.Provisioner)
	errs = append(errs, validateParameters(field.NewPath("parameters"), c.Parameters)...)
	if *c.ReclaimPolicy != "" {
		errs = append(errs, resource.OneOf(field.NewPath("reclaimPolicy"), *c.ReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, resource.OneOf(field.NewPath("volumeBindingMode"), *c.VolumeBindingMode,
		storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	return append(errs, validateTopologies(field.NewPath("allowedTopologies"), c.AllowedTopologies)...)
}

func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(c.Parameters, old.Parameters, field.NewPath("parameters"))
	errs = append(errs, apivalidation.ValidateImmutableField(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, apivalidation.ValidateImmutableField(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

func warnStorageClass(c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		path := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions")
		for j, e := range term.MatchLabelExpressions {
			warnings = append(warnings, podspec.WarnNodeLabel(e.Key, path.Index(j).Child("key"))...)
		}
	}
	return warnings
}

// validateDriver validates the name of a provisioner or driver.
func validateDriver(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	name = strings.ToLower(name)
	return resource.Invalid(path, name, validation.IsQualifiedName(name))
}

func validateParameters(path *field.Path, parameters map[string]string) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, ok := parameters[""]; ok {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if sizeOf(parameters) > maxParametersSize {
		errs = append(errs, field.TooLong(path, "", maxParametersSize))
	}
	return errs
}

// sizeOf returns the number of bytes of all keys and values.
func sizeOf(m map[string]string) int {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}

func validateTopologies(path *field.Path, terms []corev1.TopologySelectorTerm) field.ErrorList {
	var errs field.ErrorList
	for i, term := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		var keys []string
		for n, e := range term.MatchLabelExpressions {
			errs = append(errs, validateTopologyLabel(at.Index(n), e)...)
			if slices.Contains(keys, e.Key) {
				errs = append(errs, field.Duplicate(at.Index(n).Child("key"), e.Key))
			}
			keys = append(keys, e.Key)
		}
		// kube-apiserver finds a term without expressions equal to one that is not set.
		if len(keys) == 0 || slices.ContainsFunc(terms[:i], func(other corev1.TopologySelectorTerm) bool {
			return apiequality.Semantic.DeepEqual(topologyOf(other), topologyOf(term))
		}) {
			errs = append(errs, field.Duplicate(at, ""))
		}
	}
	return errs
}

func validateTopologyLabel(path *field.Path, e corev1.TopologySelectorLabelRequirement) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	if len(e.Values) == 0 {
		errs = append(errs, field.Required(values, ""))
	}
	for i, v := range e.Values {
		if slices.Contains(e.Values[:i], v) {
			errs = append(errs, field.Duplicate(values.Index(i), v))
		}
	}
	return append(errs, metav1validation.ValidateLabelName(e.Key, path.Child("key"))...)
}

// topologyOf returns the keys and values of a term, independent of their order.
func topologyOf(term corev1.TopologySelectorTerm) map[string][]string {
	topology := map[string][]string{}
	for _, e := range term.MatchLabelExpressions {
		topology[e.Key] = slices.Sorted(slices.Values(e.Values))
	}
	return topology
}

func isTrue(b *bool) bool { return b != nil && *b }
