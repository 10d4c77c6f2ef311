package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var mutatingWebhookConfigurations = resource.Type[*admissionv1.MutatingWebhookConfiguration]{
	Name: "mutatingwebhookconfigurations", Categories: categories(), AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[admissionv1.MutatingWebhookConfiguration, admissionv1beta1.MutatingWebhookConfiguration]().
			DefaultedBy(defaultMutatingV1beta1).ValidatedBy(validateMutatingV1beta1),
	},
	Default: func(c *admissionv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			defaultWebhook(mutatingWebhook(&c.Webhooks[i]))
			resource.Fill(&c.Webhooks[i].ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
		}
	},
	Validate: validateReinvocations,
	ValidateCreate: func(c *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
		return validateNewWebhooks(mutatingWebhooks(c), leniency{})
	},
	ValidateUpdate: func(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
		return validateChangedWebhooks(mutatingWebhooks(c), mutatingWebhooks(old), leniencyOf(mutatingWebhooks(old)))
	},
	Generation:     true,
	RequireVersion: true,
	Columns:        webhookColumns(func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
}

// mutatingWebhooks returns the webhooks of a configuration.
func mutatingWebhooks(c *admissionv1.MutatingWebhookConfiguration) []webhook {
	hooks := make([]webhook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		hooks = append(hooks, mutatingWebhook(&c.Webhooks[i]))
	}
	return hooks
}

func mutatingWebhook(h *admissionv1.MutatingWebhook) webhook {
	return webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, reviewVersions: h.AdmissionReviewVersions, conditions: h.MatchConditions,
		failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy, sideEffects: &h.SideEffects, timeout: &h.TimeoutSeconds,
		namespaces: &h.NamespaceSelector, objects: &h.ObjectSelector,
	}
}

func validateReinvocations(c *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	var errs field.ErrorList
	for i := range c.Webhooks {
		errs = append(errs, validateReinvocation(field.NewPath("webhooks").Index(i).Child("reinvocationPolicy"), *c.Webhooks[i].ReinvocationPolicy)...)
	}
	return errs
}

func validateReinvocation(path *field.Path, policy admissionv1.ReinvocationPolicyType) field.ErrorList {
	return resource.OneOf(path, policy, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
}
