package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateSelector validates the selector of a workload, which must not be empty.
// The kind is named in lower case in the message. A selector that is missing
// is valid here.
func ValidateSelector(selector *metav1.LabelSelector, kind string, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector, fmt.Sprintf("empty selector is invalid for %s", kind)))
	}
	return errs
}

// ValidateSelected requires that the selector selects the pods that the
// template makes; path is the template's. A selector that cannot be read has
// been reported by ValidateSelector; a missing one selects nothing.
func ValidateSelected(template *corev1.PodTemplateSpec, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || s.Matches(labels.Set(template.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`")}
}

// ValidateEndless requires a template whose pods run until they are deleted (restart
// policy Always, no active deadline); path is the template's, and kind is named in
// the message.
func ValidateEndless(template *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind)))
	}
	return errs
}

// NameWarnings warns of a workload's name that is no DNS label, since the
// names of its pods begin with it and become host names.
func NameWarnings(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if len(msgs) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
}
