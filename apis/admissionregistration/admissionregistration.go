// Package admissionregistration declares the kinds of the admissionregistration.k8s.io group.
//
// Validation here does not compile the CEL expressions of policies and match
// conditions.
package admissionregistration

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the admissionregistration.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		validatingWebhookConfigurations,
		mutatingWebhookConfigurations,
		validatingAdmissionPolicies,
		validatingAdmissionPolicyBindings,
		mutatingAdmissionPolicies,
		mutatingAdmissionPolicyBindings,
	}
}

// categories returns the categories of all kinds of the group.
func categories() []string { return []string{"api-extensions"} }
