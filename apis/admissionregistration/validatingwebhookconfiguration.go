package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var validatingWebhookConfigurations = resource.Type[*admissionv1.ValidatingWebhookConfiguration]{
	Name: "validatingwebhookconfigurations", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.ValidatingWebhookConfiguration, admissionv1beta1.ValidatingWebhookConfiguration]().
			DefaultedBy(defaultValidatingV1beta1).ValidatedBy(validateValidatingV1beta1),
	},
	Default: func(c *admissionv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			defaultWebhook(validatingWebhook(&c.Webhooks[i]))
		}
	},
	ValidateCreate: func(c *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
		return validateNewWebhooks(validatingWebhooks(c), leniency{})
	},
	ValidateUpdate: func(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
		return validateChangedWebhooks(validatingWebhooks(c), validatingWebhooks(old), leniencyOf(validatingWebhooks(old)))
	},
	Generation:     true,
	RequireVersion: true,
	Columns:        webhookColumns(func(c *admissionv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
}

// validatingWebhooks returns the webhooks of a configuration.
func validatingWebhooks(c *admissionv1.ValidatingWebhookConfiguration) []webhook {
	hooks := make([]webhook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		hooks = append(hooks, validatingWebhook(&c.Webhooks[i]))
	}
	return hooks
}

func validatingWebhook(h *admissionv1.ValidatingWebhook) webhook {
	return webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, reviewVersions: h.AdmissionReviewVersions, conditions: h.MatchConditions,
		failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy, sideEffects: &h.SideEffects, timeout: &h.TimeoutSeconds,
		namespaces: &h.NamespaceSelector, objects: &h.ObjectSelector,
	}
}
