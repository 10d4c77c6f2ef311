package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
)

var serviceCIDRs = resource.Type[*networkingv1.ServiceCIDR]{
	Name: "servicecidrs",
	Versions: []resource.Version{
		resource.Alike[networkingv1.ServiceCIDR, networkingv1beta1.ServiceCIDR](),
		resource.Also[networkingv1beta1.ServiceCIDR](schema.GroupVersion{Group: networkingv1.GroupName, Version: "v1alpha1"}),
	},
	ValidateCreate: func(c *networkingv1.ServiceCIDR) field.ErrorList { return validateServiceCIDRs(c.Spec.CIDRs) },
	ValidateUpdate: func(c, old *networkingv1.ServiceCIDR) field.ErrorList {
		return validateSameCIDRs(c.Spec.CIDRs, old.Spec.CIDRs)
	},
	Status:     true,
	StatusOnly: true,
	Columns: []resource.Column[*networkingv1.ServiceCIDR]{
		resource.Name[*networkingv1.ServiceCIDR](),
		{Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
			Value: func(c *networkingv1.ServiceCIDR) any { return strings.Join(c.Spec.CIDRs, ",") }},
		resource.Age[*networkingv1.ServiceCIDR](),
	},
}

func validateServiceCIDRs(cidrs []string) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	if len(cidrs) == 0 {
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	}
	if len(cidrs) > 2 {
		return field.ErrorList{field.Invalid(path, cidrs, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(errs) == 0 && len(cidrs) == 2 && netutils.IPFamilyOfCIDRString(cidrs[0]) == netutils.IPFamilyOfCIDRString(cidrs[1]) {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

// validateSameCIDRs forbids changes, except that a range of the second family is
// added.
func validateSameCIDRs(cidrs, old []string) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	if len(cidrs) != len(old) && (len(old) != 1 || len(cidrs) != 2) {
		return field.ErrorList{field.Invalid(path, cidrs, apivalidation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i := range old {
		if cidrs[i] != old[i] {
			errs = append(errs, field.Invalid(path.Index(i), cidrs[i], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if len(cidrs) > len(old) {
		errs = append(errs, validateServiceCIDRs(cidrs)...)
	}
	return errs
}
