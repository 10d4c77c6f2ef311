package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

const (
	maxAuditAnnotations = 20
	// maxAuditExpression is in bytes: half of what an annotation's value may
	// have, since an expression that joins strings yields more than its length.
	maxAuditExpression = 5 * 1024
)

var validatingAdmissionPolicies = resource.Type[*admissionv1.ValidatingAdmissionPolicy]{
	Name: "validatingadmissionpolicies", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.ValidatingAdmissionPolicy, admissionv1beta1.ValidatingAdmissionPolicy](),
		resource.Alike[admissionv1.ValidatingAdmissionPolicy, admissionv1alpha1.ValidatingAdmissionPolicy](),
	},
	Default: func(p *admissionv1.ValidatingAdmissionPolicy) {
		resource.Fill(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Validate: validateValidatingPolicy,
	ValidateCreate: func(p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
		return compileValidatingPolicy(p, nil)
	},
	ValidateUpdate: compileValidatingPolicy,
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: func(p, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
		return validatePolicyStatus(&p.Status)
	},
	Generation:     true,
	RequireVersion: true,
	Columns: policyColumns("Validations", "Validations indicates the number of validation rules defined in this configuration",
		func(p *admissionv1.ValidatingAdmissionPolicy) int { return len(p.Spec.Validations) },
		func(p *admissionv1.ValidatingAdmissionPolicy) *admissionv1.ParamKind { return p.Spec.ParamKind }),
}

func validateValidatingPolicy(p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	errs := validateFailurePolicy(path.Child("failurePolicy"), *spec.FailurePolicy)
	errs = append(errs, validateParamKind(path.Child("paramKind"), spec.ParamKind)...)
	errs = append(errs, validateMatchConstraints(path.Child("matchConstraints"), spec.MatchConstraints)...)
	errs = append(errs, validateMatchConditions(path.Child("matchConditions"), spec.MatchConditions)...)
	errs = append(errs, validateVariables(path.Child("variables"), spec.Variables)...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const message = "validations or auditAnnotations must contain at least one item"
		errs = append(errs, field.Required(path.Child("validations"), message), field.Required(path.Child("auditAnnotations"), message))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(path.Child("validations").Index(i), &spec.Validations[i])...)
	}
	return append(errs, validateAuditAnnotations(path.Child("auditAnnotations"), p.Name, spec.AuditAnnotations)...)
}

func validateValidation(path *field.Path, v *admissionv1.Validation) field.ErrorList {
	errs := requireExpression(path.Child("expression"), v.Expression, "expression is not specified")
	if v.MessageExpression != "" && strings.TrimSpace(v.MessageExpression) == "" {
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	}
	message := strings.TrimSpace(v.Message)
	if v.Message != "" && message == "" {
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	} else if strings.ContainsAny(message, "\n\r") {
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, resource.OneOf(path.Child("reason"), *v.Reason,
			metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

// validateAuditAnnotations validates annotations, whose full key is the policy's
// name and theirs.
func validateAuditAnnotations(path *field.Path, policy string, annotations []admissionv1.AuditAnnotation) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	var keys []string
	for i, a := range annotations {
		key, value := path.Index(i).Child("key"), path.Index(i).Child("valueExpression")
		if policy == "" {
			errs = append(errs, field.Invalid(key, a.Key, "requires metadata.name be non-empty"))
		} else {
			full := policy + "/" + a.Key
			errs = append(errs, resource.Invalid(key, full, validation.IsQualifiedName(full))...)
		}
		if slices.Contains(keys, a.Key) {
			errs = append(errs, field.Duplicate(key, a.Key))
		}
		keys = append(keys, a.Key)
		errs = append(errs, requireExpression(value, a.ValueExpression, "valueExpression is not specified")...)
		if len(strings.TrimSpace(a.ValueExpression)) > maxAuditExpression {
			errs = append(errs, field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
		}
	}
	return errs
}

func validatePolicyStatus(s *admissionv1.ValidatingAdmissionPolicyStatus) field.ErrorList {
	var errs field.ErrorList
	if s.TypeChecking != nil {
		for i, w := range s.TypeChecking.ExpressionWarnings {
			path := field.NewPath("status", "typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(path.Child("warning"), ""))
			}
			errs = append(errs, requireExpression(path.Child("fieldRef"), w.FieldRef, "")...)
		}
	}
	return append(errs, metav1validation.ValidateConditions(s.Conditions, field.NewPath("status", "conditions"))...)
}
