package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var mutatingAdmissionPolicies = resource.Type[*admissionv1.MutatingAdmissionPolicy]{
	Name: "mutatingadmissionpolicies", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.MutatingAdmissionPolicy, admissionv1beta1.MutatingAdmissionPolicy](),
		resource.Alike[admissionv1.MutatingAdmissionPolicy, admissionv1alpha1.MutatingAdmissionPolicy](),
	},
	Default: func(p *admissionv1.MutatingAdmissionPolicy) {
		resource.Fill(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Validate: validateMutatingPolicy,
	ValidateCreate: func(p *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
		return compileMutatingPolicy(p, nil)
	},
	ValidateUpdate: compileMutatingPolicy,
	Generation:     true,
	RequireVersion: true,
	Columns: policyColumns("Mutations", "Mutation indicates the number of mutations rules defined in this configuration",
		func(p *admissionv1.MutatingAdmissionPolicy) int { return len(p.Spec.Mutations) },
		func(p *admissionv1.MutatingAdmissionPolicy) *admissionv1.ParamKind { return p.Spec.ParamKind }),
}

func validateMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	errs := validateFailurePolicy(path.Child("failurePolicy"), *spec.FailurePolicy)
	errs = append(errs, validateParamKind(path.Child("paramKind"), spec.ParamKind)...)
	errs = append(errs, validateMatchConstraints(path.Child("matchConstraints"), spec.MatchConstraints)...)
	errs = append(errs, refuseDelete(path.Child("matchConstraints"), spec.MatchConstraints)...)
	errs = append(errs, validateMatchConditions(path.Child("matchConditions"), spec.MatchConditions)...)
	errs = append(errs, validateVariables(path.Child("variables"), spec.Variables)...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(path.Child("mutations").Index(i), &spec.Mutations[i])...)
	}
	if spec.ReinvocationPolicy == "" {
		return append(errs, field.Required(path.Child("reinvocationPolicy"), ""))
	}
	return append(errs, validateReinvocation(path.Child("reinvocationPolicy"), spec.ReinvocationPolicy)...)
}

// refuseDelete refuses operations that carry no object to change.
func refuseDelete(path *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for _, op := range rule.Operations {
			errs = append(errs, resource.OneOf(path.Child("resourceRules", "operations"), op,
				admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update)...)
		}
	}
	return errs
}

// validateMutation requires exactly the member that the patch type names.
func validateMutation(path *field.Path, m *admissionv1.Mutation) field.ErrorList {
	var errs field.ErrorList
	patch, apply := path.Child("jsonPatch"), path.Child("applyConfiguration")
	switch m.PatchType {
	case "":
		errs = append(errs, field.Required(path.Child("patchType"), ""))
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(patch, "must be specified when patchType is JSONPatch"))
		} else {
			errs = append(errs, requireExpression(patch.Child("expression"), m.JSONPatch.Expression, "")...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		} else {
			errs = append(errs, requireExpression(apply.Child("expression"), m.ApplyConfiguration.Expression, "")...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(patch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("patchType"), m.PatchType,
			[]admissionv1.PatchType{admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch}))
	}
	return errs
}
