package authorization

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateSubjectAccessReview(review *authorizationv1.SubjectAccessReview) field.ErrorList {
	errs := validateSpec(review.Spec)
	return append(errs, validateMeta(review.ObjectMeta, "must be empty")...)
}

func validateSelfSubjectAccessReview(review *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := validateAttributes(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	errs = append(errs, validateSelectors(review.Spec.ResourceAttributes)...)
	return append(errs, validateMeta(review.ObjectMeta, "must be empty")...)
}

func validateLocalSubjectAccessReview(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateSpec(review.Spec)
	meta := review.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, validateMeta(meta, "must be empty except for namespace")...)
	spec := field.NewPath("spec")
	if a := review.Spec.ResourceAttributes; a != nil && a.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := review.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	return errs
}

func validateSpec(spec authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateSelectors(spec.ResourceAttributes)...)
}

// validateAttributes requires attributes of either a resource or a path.
func validateAttributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

// validateMeta forbids metadata: a review is not stored.
// managedFields are allowed, as the server itself adds them.
func validateMeta(meta metav1.ObjectMeta, detail string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, detail)}
}

// validateSelectors allows unknown operators, so that clients newer than the
// server can post reviews.
func validateSelectors(resource *authorizationv1.ResourceAttributes) field.ErrorList {
	if resource == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "resourceAttributes")
	if s := resource.FieldSelector; s != nil {
		p := path.Child("fieldSelector")
		errs = append(errs, validateForm(s.RawSelector, len(s.Requirements), p)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r,
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p.Child("requirements").Index(i))...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		p := path.Child("labelSelector")
		errs = append(errs, validateForm(s.RawSelector, len(s.Requirements), p)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r,
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// validateForm requires exactly one of a selector's two forms.
func validateForm(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
