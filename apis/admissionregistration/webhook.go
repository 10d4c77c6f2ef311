package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// webhook holds the fields that validating and mutating webhooks share; its
// pointers point into the webhook.
type webhook struct {
	name           string
	client         *admissionv1.WebhookClientConfig
	rules          []admissionv1.RuleWithOperations
	reviewVersions []string
	conditions     []admissionv1.MatchCondition
	failurePolicy  **admissionv1.FailurePolicyType
	matchPolicy    **admissionv1.MatchPolicyType
	sideEffects    **admissionv1.SideEffectClass
	timeout        **int32
	namespaces     **metav1.LabelSelector
	objects        **metav1.LabelSelector
}

// defaultWebhook sets the defaults of v1 (document 2, section 9), which differ from
// those of v1beta1.
func defaultWebhook(h webhook) {
	resource.Fill(h.failurePolicy, admissionv1.Fail)
	resource.Fill(h.matchPolicy, admissionv1.Equivalent)
	resource.Fill(h.timeout, 10)
	resource.Fill(h.namespaces, metav1.LabelSelector{})
	resource.Fill(h.objects, metav1.LabelSelector{})
	if h.client.Service != nil {
		resource.Fill(&h.client.Service.Port, 443)
	}
	for i := range h.rules {
		resource.Fill(&h.rules[i].Scope, admissionv1.AllScopes)
	}
}

// leniency says which rules of v1 do not hold: those that v1beta1 did not have, for
// its clients and for what it has left in the storage (document 2, section 9).
type leniency struct {
	sideEffects, sameNames bool
}

// leniencyOf returns the rules of v1 that stored webhooks break, so that they can be
// updated.
func leniencyOf(stored []webhook) leniency {
	var l leniency
	names := map[string]bool{}
	for _, h := range stored {
		if len(validateSideEffects(field.NewPath("sideEffects"), *h.sideEffects)) > 0 {
			l.sideEffects = true
		}
		l.sameNames = l.sameNames || names[h.name]
		names[h.name] = true
	}
	return l
}

func validateNewWebhooks(hooks []webhook, l leniency) field.ErrorList {
	return append(validateWebhooks(hooks, l), compileWebhooks(hooks)...)
}

func validateChangedWebhooks(hooks, old []webhook, l leniency) field.ErrorList {
	return append(validateWebhooks(hooks, l), compileChangedWebhooks(hooks, old)...)
}

func validateWebhooks(hooks []webhook, l leniency) field.ErrorList {
	var errs field.ErrorList
	var names []string
	for i, h := range hooks {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(path, h, l)...)
		if h.name != "" && slices.Contains(names, h.name) && !l.sameNames {
			errs = append(errs, field.Duplicate(path.Child("name"), h.name))
		}
		names = append(names, h.name)
	}
	return errs
}

func validateWebhook(path *field.Path, h webhook, l leniency) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.name)
	for i := range h.rules {
		errs = append(errs, validateRule(path.Child("rules").Index(i), &h.rules[i])...)
	}
	errs = append(errs, validateFailurePolicy(path.Child("failurePolicy"), **h.failurePolicy)...)
	errs = append(errs, validateMatchPolicy(path.Child("matchPolicy"), **h.matchPolicy)...)
	if effects := *h.sideEffects; l.sideEffects && effects != nil {
		errs = append(errs, resource.OneOf(path.Child("sideEffects"), *effects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun,
			admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)...)
	} else {
		errs = append(errs, validateSideEffects(path.Child("sideEffects"), effects)...)
	}
	if t := **h.timeout; t < 1 || t > 30 {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateSelector(path.Child("namespaceSelector"), *h.namespaces)...)
	errs = append(errs, validateSelector(path.Child("objectSelector"), *h.objects)...)
	errs = append(errs, validateClient(path.Child("clientConfig"), h.client)...)
	errs = append(errs, validateMatchConditions(path.Child("matchConditions"), h.conditions)...)
	return append(errs, validateReviewVersions(path.Child("admissionReviewVersions"), h.reviewVersions)...)
}

// validateSideEffects requires webhooks without side effects in a dry run.
func validateSideEffects(path *field.Path, effects *admissionv1.SideEffectClass) field.ErrorList {
	if effects == nil {
		return field.ErrorList{field.Required(path, "must specify one of None, NoneOnDryRun")}
	}
	return resource.OneOf(path, *effects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)
}

// reviewVersions are the versions of AdmissionReview that the server supports.
var reviewVersions = []string{"v1", "v1beta1"}

// validateReviewVersions requires at least one version that the server supports;
// others are for other servers.
func validateReviewVersions(path *field.Path, versions []string) field.ErrorList {
	known := strings.Join(reviewVersions, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+known)}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, resource.Invalid(path.Index(i), v, validation.IsDNS1035Label(v))...)
	}
	if !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) }) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+known))
	}
	return errs
}

func webhookColumns[T resource.Object](count func(T) int) []resource.Column[T] {
	return []resource.Column[T]{
		resource.Name[T](),
		{Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration",
			Value: func(obj T) any { return int64(count(obj)) }},
		resource.Age[T](),
	}
}
