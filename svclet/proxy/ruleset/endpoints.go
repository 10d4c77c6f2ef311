//go:build linux

package ruleset

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// endpoint is an address and port to which connections of a service port go.
type endpoint struct {
	address netip.Addr
	port    int32
	local   bool // on this node
	remote  bool // on another node; neither is known of one without a node
	ready   bool
	// usable is false for one that is neither ready nor serving while it terminates.
	usable bool
	// zones and nodes are those for which the topology hints reserve it; nil without hints.
	zones, nodes []string
}

// String returns the endpoint in the notation of nft.
func (e endpoint) String() string {
	return net.JoinHostPort(e.address.String(), strconv.Itoa(int(e.port)))
}

// value returns the endpoint as the value of a map.
func (e endpoint) value() string { return fmt.Sprintf("%s . %d", e.address, e.port) }

// endpointsOf returns the endpoints of a service port in an IP family, sorted and
// without duplicates.
func endpointsOf(port corev1.ServicePort, all []*discoveryv1.EndpointSlice, family corev1.IPFamily, node string) []endpoint {
	var found []endpoint
	for _, slice := range all {
		if string(slice.AddressType) != string(family) || services.Headless(slice) {
			continue
		}
		for _, p := range slice.Ports {
			number, valid := services.EndpointPort(p)
			if ptr.Deref(p.Name, "") != port.Name || ptr.Deref(p.Protocol, corev1.ProtocolTCP) != port.Protocol || !valid {
				continue
			}
			for _, e := range slice.Endpoints {
				found = append(found, addressesOf(slice, e, number, node)...)
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

func addressesOf(slice *discoveryv1.EndpointSlice, e discoveryv1.Endpoint, port int32, node string) []endpoint {
	ready := ptr.Deref(e.Conditions.Ready, true)
	usable := ready || ptr.Deref(e.Conditions.Serving, true) && ptr.Deref(e.Conditions.Terminating, false)
	if !usable || len(e.Addresses) == 0 {
		return nil
	}
	// The other addresses of an endpoint are never used.
	address, valid := services.EndpointAddress(slice, e.Addresses[0])
	if !valid {
		return nil
	}
	on := ptr.Deref(e.NodeName, "")
	found := endpoint{address: address, port: port, local: on == node, remote: on != "" && on != node, ready: ready, usable: usable}
	if e.Hints != nil {
		for _, zone := range e.Hints.ForZones {
			found.zones = append(found.zones, zone.Name)
		}
		for _, node := range e.Hints.ForNodes {
			found.nodes = append(found.nodes, node.Name)
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

// near returns the ready endpoints that the hints of the endpoint slices give to a node or
// else to its zone, and all endpoints if there are none, or one that is ready has no such
// hint. Who writes hints decides which services have them, by the annotation
// service.kubernetes.io/topology-mode or spec.trafficDistribution (KEP-2433, KEP-3015). Endpoints that
// terminate are eligible whatever their hints are.
func near(all []endpoint, node, zone string) []endpoint {
	if found := reserved(all, node, func(e endpoint) []string { return e.nodes }); found != nil {
		return found
	}
	if found := reserved(all, zone, func(e endpoint) []string { return e.zones }); found != nil {
		return found
	}
	return all
}

// reserved returns the ready endpoints that have a hint for what has a name, and nil if there
// are none, or one that is ready has no hint.
func reserved(all []endpoint, name string, hints func(endpoint) []string) []endpoint {
	var found []endpoint
	for _, e := range all {
		switch {
		case !e.ready:
		case len(hints(e)) == 0:
			return nil
		case slices.Contains(hints(e), name):
			found = append(found, e)
		}
	}
	return found
}

func anywhere(endpoint) bool { return true }

func onNode(e endpoint) bool { return e.local }
