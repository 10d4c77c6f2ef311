package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var mutatingAdmissionPolicyBindings = resource.Type[*admissionv1.MutatingAdmissionPolicyBinding]{
	Name: "mutatingadmissionpolicybindings", Categories: categories(), AnyFinalizer: true,
	Default: func(b *admissionv1.MutatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
	Validate: func(b *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
		path := field.NewPath("spec")
		errs := validateBinding(path, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
		return append(errs, refuseDelete(path.Child("matchResources"), b.Spec.MatchResources)...)
	},
	Generation:     true,
	RequireVersion: true,
	Columns: bindingColumns(
		func(b *admissionv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName },
		func(b *admissionv1.MutatingAdmissionPolicyBinding) *admissionv1.ParamRef { return b.Spec.ParamRef }),
}
