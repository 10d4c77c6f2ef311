package admissionregistration

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestRulesThatV1beta1DidNotHave(t *testing.T) {
	hook := func(effects admissionv1.SideEffectClass) admissionv1.ValidatingWebhook {
		return admissionv1.ValidatingWebhook{
			Name: "a.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://localhost")},
			SideEffects: &effects, AdmissionReviewVersions: []string{"v1beta1"},
		}
	}
	configuration := func(hooks ...admissionv1.ValidatingWebhook) *admissionv1.ValidatingWebhookConfiguration {
		c := &admissionv1.ValidatingWebhookConfiguration{Webhooks: hooks}
		validatingWebhookConfigurations.Default(c)
		return c
	}
	good := configuration(hook(admissionv1.SideEffectClassNone))
	for _, test := range []struct {
		rule        string
		obj, old    *admissionv1.ValidatingWebhookConfiguration
		v1, v1beta1 []string // the fields with errors
	}{
		{"side effects", configuration(hook(admissionv1.SideEffectClassSome)), good, []string{"webhooks[0].sideEffects"}, nil},
		{"unknown side effects", configuration(hook("Many")), good, []string{"webhooks[0].sideEffects"}, []string{"webhooks[0].sideEffects"}},
		{"names", configuration(good.Webhooks[0], good.Webhooks[0]), good, []string{"webhooks[1].name"}, nil},
		{"what is stored with side effects", configuration(hook(admissionv1.SideEffectClassUnknown)), configuration(hook(admissionv1.SideEffectClassSome)), nil, nil},
		{"what is stored with the same names", configuration(good.Webhooks[0], good.Webhooks[0]), configuration(good.Webhooks[0], good.Webhooks[0]), nil, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got, beta []string
			for _, err := range validatingWebhookConfigurations.ValidateUpdate(test.obj, test.old) {
				got = append(got, err.Field)
			}
			for _, err := range validateValidatingV1beta1(test.obj, runtime.Object(test.old)) {
				beta = append(beta, err.Field)
			}
			if !slices.Equal(got, test.v1) || !slices.Equal(beta, test.v1beta1) {
				t.Errorf("errors in v1: %v, want %v; in v1beta1: %v, want %v", got, test.v1, beta, test.v1beta1)
			}
		})
	}
}
