//go:build linux

package ruleset

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// Service is a service with its endpoints.
type Service struct {
	Service  *corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Fallback Fallback
}

// Fallback is a server on this machine that serves a port of a service, in the IP families
// of its addresses, while the port has no endpoints there.
type Fallback struct {
	// Addresses are at most one of each IP family.
	Addresses []netip.AddrPort
	// Port is the port of the service, for any protocol; 0 means all ports.
	Port int32
}

// Equal reports whether both are the same.
func (f Fallback) Equal(other Fallback) bool {
	return f.Port == other.Port && slices.Equal(f.Addresses, other.Addresses)
}

// endpoints returns the server as the endpoint of a port in an IP family; none if it does
// not serve it.
func (f Fallback) endpoints(port int32, family corev1.IPFamily) []endpoint {
	if f.Port != 0 && f.Port != port {
		return nil
	}
	for _, a := range f.Addresses {
		if a.Addr().Is6() == (family == corev1.IPv6Protocol) {
			return []endpoint{{address: a.Addr(), port: int32(a.Port()), local: true, ready: true, usable: true}}
		}
	}
	return nil
}

// Part is what one service wants in a table: it does not depend on other services.
type Part struct {
	// Service has the part, and was created at a time in seconds.
	Service services.Key
	Created int64
	// Elements are by cluster IP, external IP or node port, also of those without endpoints,
	// the addresses of cluster IPs, and the hairpins of endpoints.
	// Other services may want the same keys: see [Owners].
	Elements map[Key]Element
}

// Place is where the proxy runs: a node, its zone (topology.kubernetes.io/zone), which
// may be empty, and its addresses.
type Place struct {
	Node, Zone string
	Addresses  []string
}

// PartOf returns the part of a service in the table of an IP family, at a place. It is
// empty for a service without addresses, or one that another proxy serves.
func PartOf(s Service, family corev1.IPFamily, at Place) Part {
	part := Part{
		Service: services.Key{Namespace: s.Service.Namespace, Name: s.Service.Name}, Created: s.Service.CreationTimestamp.Unix(),
		Elements: map[Key]Element{},
	}
	if !served(s.Service) || !slices.Contains(s.Service.Spec.IPFamilies, family) {
		return part
	}
	for _, port := range s.Service.Spec.Ports {
		newBuilder(&part, s, port, family, at).build()
	}
	return part
}

// served reports whether this proxy serves the service.
func served(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && !services.Foreign(s)
}

// builder adds one port of a service to a part.
type builder struct {
	*Part
	service *corev1.Service
	port    corev1.ServicePort
	family  corev1.IPFamily
	proto   string
	at      Place
	// all are the endpoints, near those that are preferred from anywhere.
	all, near []endpoint
	// serving are the addresses of all, for UDP.
	serving map[netip.AddrPort]bool
}

func newBuilder(part *Part, s Service, port corev1.ServicePort, family corev1.IPFamily, at Place) *builder {
	proto := strings.ToLower(string(port.Protocol))
	all := endpointsOf(port, s.Slices, family, at.Node)
	if len(all) == 0 {
		all = s.Fallback.endpoints(port.Port, family)
	}
	return &builder{
		Part: part, service: s.Service, port: port, family: family, proto: proto, at: at, all: all, near: near(all, at.Node, at.Zone),
	}
}

// build adds the port's elements.
func (b *builder) build() {
	b.leadTo(clusterIPs, b.service.Spec.ClusterIPs, b.internal(), nil)
	external := b.external()
	b.leadTo(externalIPs, b.service.Spec.ExternalIPs, external, nil)
	b.leadTo(externalIPs, b.loadBalancerIPs(), external, b.sources())
	if b.port.NodePort != 0 {
		b.Elements[Key{nodePorts, fmt.Sprintf("%s . %d", b.proto, b.port.NodePort)}] = b.element(nodePorts, external, netip.Addr{}, b.port.NodePort)
	}
}

// target is where the packets of a key go: to endpoints or, without any, to their end, which is a
// refusal unless they are dropped.
type target struct {
	endpoints, local []string
	localOnly        bool
	dropped          bool
}

// leadTo adds an element for each address of the family, with source ranges or without.
func (b *builder) leadTo(name string, addresses []string, to target, sources []netip.Prefix) {
	for _, ip := range b.ofFamily(addresses) {
		e := b.element(name, to, ip, b.port.Port)
		e.Sources = sources
		if name == clusterIPs {
			b.Elements[Key{serviceIPs, ip.String()}] = Element{}
		}
		b.Elements[Key{name, fmt.Sprintf("%s . %s . %d", ip, b.proto, b.port.Port)}] = e
	}
}

// ofFamily returns the addresses of the family, in one notation, as keys are compared.
func (b *builder) ofFamily(addresses []string) []netip.Addr {
	var found []netip.Addr
	for _, text := range addresses {
		if ip, ok := services.Address(text); ok && ip.Is6() == (b.family == corev1.IPv6Protocol) {
			found = append(found, ip)
		}
	}
	return found
}

// element returns that of an address and port in a set; a node port has no address.
func (b *builder) element(of string, to target, address netip.Addr, port int32) Element {
	if len(to.endpoints) == 0 {
		closed := map[string]string{clusterIPs: closedIPs, externalIPs: closedExternalIPs, nodePorts: closedPorts}[of]
		if to.dropped {
			closed = droppedIPs
		}
		return Element{Closed: closed}
	}
	return Element{Endpoints: to.endpoints, LocalOnly: to.localOnly, LocalEndpoints: to.local, Timeout: timeoutOf(b.service), Datagrams: b.datagrams(address, port)}
}

// internal returns where connections from inside the cluster go.
func (b *builder) internal() target {
	local := ptr.Deref(b.service.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal
	if !local {
		return target{endpoints: b.values(eligible(b.near, anywhere))}
	}
	// With dropped there are endpoints, on other nodes.
	return target{endpoints: b.values(eligible(b.all, onNode)), dropped: len(b.all) > 0}
}

// values returns endpoints as values of maps.
func (b *builder) values(endpoints []endpoint) []string {
	var values []string
	for _, e := range endpoints {
		values = append(values, e.value())
		b.addHairpin(e)
	}
	return values
}

// addHairpin replaces the client's address in connections of an endpoint to itself.
func (b *builder) addHairpin(e endpoint) {
	if !e.remote {
		b.Elements[Key{hairpins, fmt.Sprintf("%s . %s", e.address, e.address)}] = Element{}
	}
}

// external returns where connections from outside the cluster go. With the policy
// Cluster the node's address replaces that of the client, so that the answers of other
// nodes' endpoints come back the same way.
func (b *builder) external() target {
	if !b.exposed() {
		return target{}
	}
	to := target{endpoints: b.values(eligible(b.near, anywhere))}
	if b.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		to.localOnly, to.local = true, b.values(eligible(b.all, onNode))
	}
	return to
}

// exposed reports whether the port has addresses outside the cluster.
func (b *builder) exposed() bool {
	return b.port.NodePort != 0 || len(b.service.Spec.ExternalIPs) > 0 || len(b.loadBalancerIPs()) > 0
}

// loadBalancerIPs returns the addresses of load balancers that deliver to the node what is
// sent to them. Connections to one that is a proxy itself pass through it, also those of
// pods (KEP-1860).
func (b *builder) loadBalancerIPs() []string {
	var ips []string
	for _, ingress := range b.service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" && ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP {
			ips = append(ips, ingress.IP)
		}
	}
	return ips
}

// timeoutOf returns for how many seconds without a connection a client's connections go to the same
// endpoint; 0 if the service has no session affinity.
func timeoutOf(s *corev1.Service) int32 {
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		return ptr.Deref(c.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

// sources returns the load balancer's source ranges of the family, sorted and without
// duplicates; connections from outside of them are dropped. Those of the other family restrict
// nothing, nor does a range of all addresses, as with kube-proxy. A node that has an address of
// the load balancer itself connects to it from that address, which is allowed if a range has the
// address of the node.
func (b *builder) sources() []netip.Prefix {
	var ranges []netip.Prefix
	fromNode := false
	for _, text := range b.service.Spec.LoadBalancerSourceRanges {
		// The API accepts spaces and leading zeros.
		_, block, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil || netutils.IsIPv6CIDR(block) != (b.family == corev1.IPv6Protocol) {
			continue
		}
		ones, size := block.Mask.Size()
		address, _ := netip.AddrFromSlice(block.IP)
		if address = address.Unmap(); size > address.BitLen() { // such as ::ffff:10.0.0.0/104
			ones = max(0, ones-(size-address.BitLen()))
		}
		if ones == 0 {
			return nil
		}
		ranges = append(ranges, netip.PrefixFrom(address, ones))
		fromNode = fromNode || slices.ContainsFunc(b.at.Addresses, func(address string) bool { return block.Contains(net.ParseIP(address)) })
	}
	if fromNode {
		for _, ip := range b.ofFamily(b.loadBalancerIPs()) {
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return slices.Compact(ranges)
}
