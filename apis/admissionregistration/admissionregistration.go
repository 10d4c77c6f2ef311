// Package admissionregistration declares the kinds of the admissionregistration.k8s.io group.
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
