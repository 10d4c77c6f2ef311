package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// betaLeniency is what v1beta1 allows beyond v1.
var betaLeniency = leniency{sideEffects: true, sameNames: true}

// The defaults of v1beta1 that differ from those of v1 (document 2, section 9).
const (
	betaTimeout       int32 = 30
	betaReviewVersion       = "v1beta1"
)

func defaultValidatingV1beta1(obj runtime.Object) {
	hooks := obj.(*admissionv1beta1.ValidatingWebhookConfiguration).Webhooks
	for i := range hooks {
		h := &hooks[i]
		fillV1beta1(&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions)
	}
}

func defaultMutatingV1beta1(obj runtime.Object) {
	hooks := obj.(*admissionv1beta1.MutatingWebhookConfiguration).Webhooks
	for i := range hooks {
		h := &hooks[i]
		fillV1beta1(&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions)
	}
}

// fillV1beta1 sets the defaults of the fields that webhooks of both kinds have.
func fillV1beta1(failure **admissionv1beta1.FailurePolicyType, match **admissionv1beta1.MatchPolicyType, effects **admissionv1beta1.SideEffectClass,
	timeout **int32, versions *[]string) {
	resource.Fill(failure, admissionv1beta1.Ignore)
	resource.Fill(match, admissionv1beta1.Exact)
	resource.Fill(effects, admissionv1beta1.SideEffectClassUnknown)
	resource.Fill(timeout, betaTimeout)
	if len(*versions) == 0 {
		*versions = []string{betaReviewVersion}
	}
}

func validateValidatingV1beta1(obj, old runtime.Object) field.ErrorList {
	hooks := validatingWebhooks(obj.(*admissionv1.ValidatingWebhookConfiguration))
	if old == nil {
		return validateNewWebhooks(hooks, betaLeniency)
	}
	return validateChangedWebhooks(hooks, validatingWebhooks(old.(*admissionv1.ValidatingWebhookConfiguration)), betaLeniency)
}

func validateMutatingV1beta1(obj, old runtime.Object) field.ErrorList {
	c := obj.(*admissionv1.MutatingWebhookConfiguration)
	errs := validateReinvocations(c)
	if old == nil {
		return append(errs, validateNewWebhooks(mutatingWebhooks(c), betaLeniency)...)
	}
	return append(errs, validateChangedWebhooks(mutatingWebhooks(c), mutatingWebhooks(old.(*admissionv1.MutatingWebhookConfiguration)), betaLeniency)...)
}
