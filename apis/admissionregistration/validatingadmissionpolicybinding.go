package admissionregistration

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var validatingAdmissionPolicyBindings = resource.Type[*admissionv1.ValidatingAdmissionPolicyBinding]{
	Name: "validatingadmissionpolicybindings", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.ValidatingAdmissionPolicyBinding, admissionv1beta1.ValidatingAdmissionPolicyBinding](),
		resource.Alike[admissionv1.ValidatingAdmissionPolicyBinding, admissionv1alpha1.ValidatingAdmissionPolicyBinding]().
			DefaultedBy(func(obj runtime.Object) {
				defaultParamRefV1alpha1(obj.(*admissionv1alpha1.ValidatingAdmissionPolicyBinding).Spec.ParamRef)
			}).
			FilledWithout("spec.validationActions", func(obj runtime.Object) { // 1.26 denies
				spec := &obj.(*admissionv1alpha1.ValidatingAdmissionPolicyBinding).Spec
				if len(spec.ValidationActions) == 0 {
					spec.ValidationActions = []admissionv1alpha1.ValidationAction{admissionv1alpha1.Deny}
				}
			}),
	},
	Default: func(b *admissionv1.ValidatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
	Validate: func(b *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
		path := field.NewPath("spec")
		errs := validateBinding(path, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
		return append(errs, validateActions(path.Child("validationActions"), b.Spec.ValidationActions)...)
	},
	Generation:     true,
	RequireVersion: true,
	Columns: bindingColumns(
		func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName },
		func(b *admissionv1.ValidatingAdmissionPolicyBinding) *admissionv1.ParamRef { return b.Spec.ParamRef }),
}

func validateActions(path *field.Path, actions []admissionv1.ValidationAction) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "at least one validation action is required")}
	}
	var errs field.ErrorList
	for i, a := range actions {
		errs = append(errs, resource.OneOf(path.Index(i), a, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(path, actions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
