// Package exclusion owns which resources admission policies and webhooks do not intercept.
package exclusion

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
)

// reviews are the questions of other servers, and of users, about users and their rights. A
// plugin that refused or changed them could break all authentication, and give users other
// rights.
var reviews = []schema.GroupResource{
	{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
	{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
	{Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews"},
	{Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"},
	{Group: authorizationv1.GroupName, Resource: "selfsubjectrulesreviews"},
	{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
}

// Initializer excludes reviews from admission policies and, if Webhooks is set, from
// admission webhooks.
type Initializer struct{ Webhooks bool }

var _ admission.PluginInitializer = Initializer{}

// Initialize implements admission.PluginInitializer.
func (i Initializer) Initialize(plugin admission.Interface) {
	wants, ok := plugin.(initializer.WantsExcludedAdmissionResources)
	if _, calls := plugin.(webhookinit.WantsServiceResolver); ok && (i.Webhooks || !calls) {
		wants.SetExcludedAdmissionResources(slices.Clone(reviews))
	}
}
