package admissionregistration

import (
	"slices"
	"strings"
	"testing"

	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// v1alpha1 returns the version of a kind at releases that lack some fields.
func v1alpha1(t *testing.T, kind *resource.Kind, lacking ...string) resource.Version {
	t.Helper()
	i := slices.IndexFunc(kind.Versions, func(v resource.Version) bool { return v.GVK.Version == "v1alpha1" })
	if i < 0 {
		t.Fatalf("%v is not served in v1alpha1", kind.Hub)
	}
	return kind.Versions[i].At(func(_ schema.GroupVersionKind, path ...string) bool {
		return slices.Contains(lacking, strings.Join(path, "."))
	})
}

func TestBindingsOfV1alpha1DenyWhatHasNoParameters(t *testing.T) {
	validating := &admissionv1alpha1.ValidatingAdmissionPolicyBinding{Spec: admissionv1alpha1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &admissionv1alpha1.ParamRef{Name: "p"}}}
	mutating := &admissionv1alpha1.MutatingAdmissionPolicyBinding{Spec: admissionv1alpha1.MutatingAdmissionPolicyBindingSpec{ParamRef: &admissionv1alpha1.ParamRef{Name: "p"}}}
	v1alpha1(t, validatingAdmissionPolicyBindings.Kind()).Default(validating)
	v1alpha1(t, mutatingAdmissionPolicyBindings.Kind()).Default(mutating)
	for _, got := range []*admissionv1alpha1.ParameterNotFoundActionType{validating.Spec.ParamRef.ParameterNotFoundAction, mutating.Spec.ParamRef.ParameterNotFoundAction} {
		if got == nil || *got != admissionv1alpha1.DenyAction {
			t.Errorf("%v", got)
		}
	}
	if len(validating.Spec.ValidationActions) > 0 {
		t.Errorf("a release that has the field requires it, and got %v", validating.Spec.ValidationActions)
	}
	without := runtime.Object(&admissionv1alpha1.MutatingAdmissionPolicyBinding{})
	v1alpha1(t, mutatingAdmissionPolicyBindings.Kind()).Default(without) // no parameters
}

// TestBindingsOfAReleaseWithoutActionsDeny is Kubernetes 1.26.
func TestBindingsOfAReleaseWithoutActionsDeny(t *testing.T) {
	version := v1alpha1(t, validatingAdmissionPolicyBindings.Kind(), "spec.validationActions", "spec.paramRef.parameterNotFoundAction")
	for _, test := range []struct {
		has, want []admissionv1alpha1.ValidationAction
	}{
		{nil, []admissionv1alpha1.ValidationAction{admissionv1alpha1.Deny}},
		{[]admissionv1alpha1.ValidationAction{admissionv1alpha1.Audit}, []admissionv1alpha1.ValidationAction{admissionv1alpha1.Audit}}, // stored by a newer release
	} {
		b := &admissionv1alpha1.ValidatingAdmissionPolicyBinding{Spec: admissionv1alpha1.ValidatingAdmissionPolicyBindingSpec{
			ParamRef: &admissionv1alpha1.ParamRef{Name: "p"}, ValidationActions: test.has}}
		version.Default(b)
		if !slices.Equal(b.Spec.ValidationActions, test.want) {
			t.Errorf("%v: %v", test.has, b.Spec.ValidationActions)
		}
		if action := b.Spec.ParamRef.ParameterNotFoundAction; action == nil || *action != admissionv1alpha1.DenyAction {
			t.Errorf("%v", action)
		}
	}
}
