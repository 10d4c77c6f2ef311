package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var ipAddresses = resource.Type[*networkingv1.IPAddress]{
	Name: "ipaddresses", Singular: "ipaddress", ShortNames: []string{"ip"},
	Versions: []resource.Version{
		resource.Alike[networkingv1.IPAddress, networkingv1beta1.IPAddress](),
		resource.Also[networkingv1beta1.IPAddress](schema.GroupVersion{Group: networkingv1.GroupName, Version: "v1alpha1"}),
	},
	NameRule: canonicalIP,
	Validate: func(a *networkingv1.IPAddress) field.ErrorList {
		return validateParent(field.NewPath("spec", "parentRef"), a.Spec.ParentRef)
	},
	ValidateUpdate: func(a, old *networkingv1.IPAddress) field.ErrorList {
		return apivalidation.ValidateImmutableField(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
	},
	Columns: []resource.Column[*networkingv1.IPAddress]{
		resource.Name[*networkingv1.IPAddress](),
		{Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"],
			Value: func(a *networkingv1.IPAddress) any { return parentCell(a.Spec.ParentRef) }},
	},
}

// canonicalIP requires an IP address in canonical form as the name.
func canonicalIP(name string, _ bool) []string {
	var messages []string
	for _, err := range validation.IsValidIP(nil, name) {
		messages = append(messages, err.Detail)
	}
	return messages
}

// validateParent validates a reference to the object that has the address; the
// core group, of services, is the empty string.
func validateParent(path *field.Path, p *networkingv1.ParentReference) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if p.Group != "" {
		errs = append(errs, resource.Invalid(path.Child("group"), p.Group, validation.IsDNS1123Subdomain(p.Group))...)
	}
	errs = append(errs, requireSegment(path.Child("resource"), p.Resource)...)
	errs = append(errs, requireSegment(path.Child("name"), p.Name)...)
	if p.Namespace != "" {
		errs = append(errs, requireSegment(path.Child("namespace"), p.Namespace)...)
	}
	return errs
}

func parentCell(p *networkingv1.ParentReference) string {
	if p == nil {
		return "<none>"
	}
	parts := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())}
	if p.Namespace != "" {
		parts = append(parts, p.Namespace)
	}
	return strings.Join(append(parts, p.Name), "/")
}
