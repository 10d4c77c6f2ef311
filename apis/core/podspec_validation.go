package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodTemplateSpec judges a template of pods; path is the template's.
// What the owner of the template demands beyond (a restart policy, that the
// labels match a selector) is the owner's to check.
func ValidatePodTemplateSpec(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, ValidatePodSpec(&t.Spec, nil, path.Child("spec"))...)
}

// ValidatePodSpec judges a defaulted pod spec; path is the spec's. The metadata
// is that of the pod, nil for a template.
func ValidatePodSpec(spec *corev1.PodSpec, _ *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	return errs
}
