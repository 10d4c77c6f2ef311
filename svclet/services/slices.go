package services

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	netutils "k8s.io/utils/net"
)

// Headless reports whether a label marks an endpoint slice as one of a headless service.
// Proxies leave it out, as kube-proxy does, and names of services have it.
func Headless(slice *discoveryv1.EndpointSlice) bool {
	_, headless := slice.Labels[corev1.IsHeadlessService]
	return headless
}

// Address returns the address of a text that the API accepts: also one with leading zeros,
// and one of IPv4 that is written as one of IPv6. It reports false for any other text.
func Address(text string) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return address.Unmap(), ok
}

// EndpointAddress is [Address], which reports false if the address is not of the slice's IP
// family, too.
func EndpointAddress(slice *discoveryv1.EndpointSlice, text string) (netip.Addr, bool) {
	address, ok := Address(text)
	family := discoveryv1.AddressTypeIPv6
	if address.Is4() {
		family = discoveryv1.AddressTypeIPv4
	}
	return address, ok && slice.AddressType == family
}

// EndpointPort returns the number of a port of endpoints. It reports false for one without
// a number, and for what is not a port: the API does not validate it.
func EndpointPort(port discoveryv1.EndpointPort) (int32, bool) {
	if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
		return 0, false
	}
	return *port.Port, true
}
