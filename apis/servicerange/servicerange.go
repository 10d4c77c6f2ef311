// Package servicerange knows which addresses a range of cluster IP addresses has, and how
// ServiceCIDR and IPAddress objects are related.
package servicerange

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// Manager is the value of the label ipaddress.kubernetes.io/managed-by of the IPAddress
// objects that the API server writes for services.
const Manager = "ipallocator.k8s.io"

// Contains reports whether services can have an address of a range: not the network's own
// and, of IPv4, not the broadcast address.
func Contains(cidr netip.Prefix, address netip.Addr) bool {
	if !cidr.Contains(address) || address == cidr.Masked().Addr() {
		return false
	}
	return !address.Is4() || cidr.Contains(address.Next())
}

// Of returns the ranges of an object, which validation has checked.
func Of(object *networkingv1.ServiceCIDR) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(object.Spec.CIDRs))
	for _, text := range object.Spec.CIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			all = append(all, cidr.Masked())
		}
	}
	return all
}

// Has reports whether one of the ranges of an object contains an address.
func Has(object *networkingv1.ServiceCIDR, address netip.Addr) bool {
	return slices.ContainsFunc(Of(object), func(cidr netip.Prefix) bool { return Contains(cidr, address) })
}
