package exclusion

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"svc.dev/svc/apis"
)

func TestEveryReviewIsExcluded(t *testing.T) {
	for _, kind := range apis.Kinds() {
		resource := kind.Resource()
		isReview := kind.Answer != nil && (resource.Group == authenticationv1.GroupName || resource.Group == authorizationv1.GroupName)
		if got := slices.Contains(reviews, resource); got != isReview {
			t.Errorf("%s is excluded: %t, want %t", resource, got, isReview)
		}
	}
}

// excluded notes what is excluded from a plugin.
type excluded struct {
	admission.Interface
	admission.InitializationValidator
	resources []schema.GroupResource
}

func (e *excluded) SetExcludedAdmissionResources(resources []schema.GroupResource) {
	e.resources = resources
}

// calling is a plugin that calls webhooks.
type calling struct {
	excluded
	webhookinit.WantsServiceResolver
}

func TestReviewsAreExcludedFromWebhooksOnlyIfTheGateIsOn(t *testing.T) {
	for _, webhooks := range []bool{false, true} {
		policy, webhook := &excluded{}, &calling{}
		for _, plugin := range []admission.Interface{policy, webhook} {
			Initializer{Webhooks: webhooks}.Initialize(plugin)
		}
		if !slices.Equal(policy.resources, reviews) {
			t.Errorf("gate %t: %v are excluded from policies", webhooks, policy.resources)
		}
		if (webhook.resources != nil) != webhooks {
			t.Errorf("gate %t: %v are excluded from webhooks", webhooks, webhook.resources)
		}
	}
}

// These interfaces distinguish the plugins of the library.
var (
	_ initializer.WantsExcludedAdmissionResources = &validatingpolicy.Plugin{}
	_ initializer.WantsExcludedAdmissionResources = &mutatingpolicy.Plugin{}
	_ webhookinit.WantsServiceResolver            = &validatingwebhook.Plugin{}
	_ webhookinit.WantsServiceResolver            = &mutatingwebhook.Plugin{}
)
