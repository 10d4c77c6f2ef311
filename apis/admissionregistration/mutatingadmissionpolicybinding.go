package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var mutatingAdmissionPolicyBindings = resource.Type[*admissionv1.MutatingAdmissionPolicyBinding]{
	Name: "mutatingadmissionpolicybindings", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.MutatingAdmissionPolicyBinding, admissionv1beta1.MutatingAdmissionPolicyBinding](),
		resource.Alike[admissionv1.MutatingAdmissionPolicyBinding, admissionv1alpha1.MutatingAdmissionPolicyBinding]().DefaultedBy(func(obj runtime.Object) {
			defaultParamRefV1alpha1(obj.(*admissionv1alpha1.MutatingAdmissionPolicyBinding).Spec.ParamRef)
		}),
	},
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
