// Package subsets converts the subsets of Endpoints to a canonical form.
package subsets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Address is one address on one port, or on none, as headless services may be.
type Address struct {
	corev1.EndpointAddress
	Port  *corev1.EndpointPort
	Ready bool
}

// Unpack returns the addresses of subsets.
func Unpack(subsets []corev1.EndpointSubset) []Address {
	var all []Address
	for _, s := range subsets {
		ports := make([]*corev1.EndpointPort, 0, len(s.Ports))
		for i := range s.Ports {
			ports = append(ports, &s.Ports[i])
		}
		if len(ports) == 0 {
			ports = append(ports, nil)
		}
		for _, p := range ports {
			for _, a := range s.Addresses {
				all = append(all, Address{a, p, true})
			}
			for _, a := range s.NotReadyAddresses {
				all = append(all, Address{a, p, false})
			}
		}
	}
	return all
}

// Pack returns subsets in a canonical order. Ports share a subset if they have the
// same addresses with the same readiness. An address that is both ready and not
// ready on a port is not ready.
func Pack(all []Address) []corev1.EndpointSubset {
	byPort := map[string]map[string]Address{} // port, address
	for _, a := range all {
		port, key := portKey(a.Port), addressKey(a.EndpointAddress)
		if byPort[port] == nil {
			byPort[port] = map[string]Address{}
		}
		if before, ok := byPort[port][key]; !ok || before.Ready {
			byPort[port][key] = a
		}
	}
	var subsets []corev1.EndpointSubset
	seen := map[string]int{} // addresses and their readiness, place in subsets
	for _, port := range slices.Sorted(maps.Keys(byPort)) {
		addresses := byPort[port]
		keys := slices.Sorted(maps.Keys(addresses))
		var content strings.Builder
		for _, key := range keys {
			fmt.Fprintf(&content, "%s %t,", key, addresses[key].Ready)
		}
		at, ok := seen[content.String()]
		if !ok {
			at = len(subsets)
			seen[content.String()] = at
			subsets = append(subsets, subset(keys, addresses))
		}
		if p := addresses[keys[0]].Port; p != nil {
			subsets[at].Ports = append(subsets[at].Ports, *p)
		}
	}
	return subsets
}

// subset returns a subset with the addresses in the order of keys.
func subset(keys []string, addresses map[string]Address) corev1.EndpointSubset {
	var s corev1.EndpointSubset
	for _, key := range keys {
		if a := addresses[key]; a.Ready {
			s.Addresses = append(s.Addresses, a.EndpointAddress)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a.EndpointAddress)
		}
	}
	return s
}

// addressKey identifies an address: pods on the host network share its IP.
func addressKey(a corev1.EndpointAddress) string {
	if a.TargetRef == nil {
		return a.IP
	}
	return fmt.Sprintf("%s %s", a.IP, a.TargetRef.UID)
}

// portKey identifies a port, and sorts by name and number.
func portKey(p *corev1.EndpointPort) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s %05d %s %s", p.Name, p.Port, p.Protocol, ptr.Deref(p.AppProtocol, ""))
}
