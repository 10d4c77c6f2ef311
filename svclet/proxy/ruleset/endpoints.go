//go:build linux

package ruleset

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// endpoint is an address and port to which connections of a service port go.
type endpoint struct {
	address netip.Addr
	port    int32
	local   bool // on this node
	ready   bool
	// usable is false for one that is neither ready nor serving while it terminates.
	usable bool
	// zones are those for which the topology hints reserve it; nil without hints.
	zones []string
}

// String returns the endpoint in the notation of nft.
func (e endpoint) String() string {
	return net.JoinHostPort(e.address.String(), strconv.Itoa(int(e.port)))
}

// endpointsOf returns the endpoints of a service port in an IP family, sorted and
// without duplicates.
func endpointsOf(port corev1.ServicePort, all []*discoveryv1.EndpointSlice, family corev1.IPFamily, node string) []endpoint {
	var found []endpoint
	for _, slice := range all {
		if string(slice.AddressType) != string(family) {
			continue
		}
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != port.Name || ptr.Deref(p.Protocol, corev1.ProtocolTCP) != port.Protocol || p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				found = append(found, addressesOf(e, *p.Port, node)...)
			}
		}
	}
	// Of duplicates, the first is the best.
	slices.SortFunc(found, func(a, b endpoint) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.port, b.port), rank(a)-rank(b))
	})
	return slices.CompactFunc(found, func(a, b endpoint) bool { return a.address == b.address && a.port == b.port })
}

func rank(e endpoint) int {
	switch {
	case e.ready:
		return 0
	case e.usable:
		return 1
	}
	return 2
}

func addressesOf(e discoveryv1.Endpoint, port int32, node string) []endpoint {
	ready := ptr.Deref(e.Conditions.Ready, true)
	usable := ready || ptr.Deref(e.Conditions.Serving, ready) && ptr.Deref(e.Conditions.Terminating, false)
	if !usable || len(e.Addresses) == 0 {
		return nil
	}
	// The other addresses of an endpoint are never used.
	address, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return nil // the API server has validated it
	}
	found := endpoint{address: address, port: port, local: ptr.Deref(e.NodeName, "") == node, ready: ready, usable: usable}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			found.zones = append(found.zones, zone.Name)
		}
	}
	return []endpoint{found}
}

// eligible returns those endpoints that get connections: the ready ones or, if there are
// none, those that still serve while they terminate (KEP-1669).
func eligible(all []endpoint, keep func(endpoint) bool) []endpoint {
	var ready, terminating []endpoint
	for _, e := range all {
		switch {
		case !keep(e):
		case e.ready:
			ready = append(ready, e)
		default:
			terminating = append(terminating, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return terminating
}

// near returns the ready endpoints for a zone, if the service has topology-aware routing,
// each ready endpoint has a hint, and one is for the zone. Otherwise it returns all ready
// ones (KEP-2433). Endpoints that terminate are eligible whatever their hints are.
func near(all []endpoint, s *corev1.Service, zone string) []endpoint {
	if zone == "" || !topologyAware(s) {
		return all
	}
	var inZone []endpoint
	for _, e := range all {
		switch {
		case !e.ready:
		case len(e.zones) == 0:
			return all
		case slices.Contains(e.zones, zone):
			inZone = append(inZone, e)
		}
	}
	if len(inZone) == 0 {
		return all
	}
	return inZone
}

// topologyAware reports whether the annotation of a service requires topology-aware
// routing. The deprecated annotation has precedence.
func topologyAware(s *corev1.Service) bool {
	mode, found := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !found {
		mode = s.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

func anywhere(endpoint) bool { return true }

func onNode(e endpoint) bool { return e.local }
