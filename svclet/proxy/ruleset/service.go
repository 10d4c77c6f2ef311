//go:build linux

package ruleset

import (
	"crypto/sha256"
	"encoding/base32"
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
	// Chains have their rules, and Sets their timeouts in seconds, by name.
	Chains map[string][]string
	Sets   map[string]int32
	// Elements are by cluster IP, external IP or node port, also of those without endpoints,
	// the addresses of cluster IPs, and the hairpins of endpoints.
	// Other services may want the same keys: see [Owners].
	Elements map[Key]Element
}

// The longest name of a chain that nft accepts is 127 characters long.
const maxName = 120

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
		Chains: map[string][]string{}, Sets: map[string]int32{}, Elements: map[Key]Element{},
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
	id      string // of names
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
		id: strings.Join([]string{s.Service.Namespace, s.Service.Name, proto, port.Name}, "/"),
	}
}

// name returns the name of an object of the port; the hash makes it unique when it is
// cut.
func (b *builder) name(kind, rest string) string {
	text := b.id + rest
	sum := sha256.Sum256([]byte(text))
	name := kind + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])) + "-" + strings.ReplaceAll(text, ":", ".")
	return name[:min(len(name), maxName)]
}

// ip returns the expression for the address of a packet's header, such as "ip saddr".
func (b *builder) ip(field string) string { return Protocol(b.family) + " " + field }

// build adds the port's chains, and the elements that lead to them.
func (b *builder) build() {
	b.leadTo(clusterIPs, b.service.Spec.ClusterIPs, b.internal(), "")
	external := b.external()
	b.leadTo(externalIPs, b.service.Spec.ExternalIPs, external, "")
	b.leadTo(externalIPs, b.loadBalancerIPs(), external, b.restrictSources())
	if b.port.NodePort != 0 {
		b.Elements[Key{nodePorts, fmt.Sprintf("%s . %d", b.proto, b.port.NodePort)}] = b.element(nodePorts, external, netip.Addr{}, b.port.NodePort)
	}
}

// target is where the packets of a key go: to endpoints, to a chain that chooses one or, without
// endpoints, to their end, which is a refusal unless they are dropped.
type target struct {
	endpoints, local []string
	localOnly        bool
	chain            string
	dropped          bool
}

// leadTo adds an element for each address of the family, with a guard or without.
func (b *builder) leadTo(name string, addresses []string, to target, guard string) {
	for _, ip := range b.ofFamily(addresses) {
		e := b.element(name, to, ip, b.port.Port)
		e.Guard = guard
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
		ip, err := netip.ParseAddr(text)
		if err == nil && ip.Unmap().Is6() == (b.family == corev1.IPv6Protocol) {
			found = append(found, ip.Unmap())
		}
	}
	return found
}

// element returns that of an address and port in a set; a node port has no address.
func (b *builder) element(of string, to target, address netip.Addr, port int32) Element {
	if to.chain == "" && len(to.endpoints) == 0 {
		closed := map[string]string{clusterIPs: closedIPs, externalIPs: closedExternalIPs, nodePorts: closedPorts}[of]
		if to.dropped {
			closed = droppedIPs
		}
		return Element{Closed: closed}
	}
	return Element{Endpoints: to.endpoints, LocalOnly: to.localOnly, LocalEndpoints: to.local, Chain: to.chain, Datagrams: b.datagrams(address, port)}
}

// internal returns where connections from inside the cluster go.
func (b *builder) internal() target {
	local := ptr.Deref(b.service.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal
	if !local {
		return b.choose("service", eligible(b.near, anywhere))
	}
	t := b.choose("local", eligible(b.all, onNode))
	t.dropped = len(b.all) > 0 // there are endpoints, on other nodes
	return t
}

// choose returns where connections to endpoints go: to these or, if clients stay with theirs, to
// a chain, which it adds.
func (b *builder) choose(kind string, endpoints []endpoint) target {
	if b.sticky() {
		return target{chain: b.balance(kind, endpoints)}
	}
	return target{endpoints: b.values(endpoints)}
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
	local := b.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	to, here := b.choose("service", eligible(b.near, anywhere)), eligible(b.all, onNode)
	switch {
	case to.chain != "":
		return target{chain: b.externalChain(to.chain, local, here)}
	case local:
		to.localOnly, to.local = true, b.values(here)
	}
	return to
}

// externalChain adds the chain for connections from outside the cluster to the endpoints of a chain
// or, if the policy is Local, to those of this node. It returns the name.
func (b *builder) externalChain(everywhere string, local bool, here []endpoint) string {
	name := b.name("external", "")
	if !local {
		b.Chains[name] = []string{"jump " + masqueradeChain, "goto " + everywhere}
		return name
	}
	// This node's own connections, and those of its pods, go to all endpoints.
	rules := []string{
		"fib saddr type local jump " + masqueradeChain,
		"fib saddr type local goto " + everywhere,
		b.ip("saddr") + " @" + podRanges + " goto " + everywhere,
	}
	if local := b.balance("local", here); local != "" {
		rules = append(rules, "goto "+local)
	} else {
		rules = append(rules, "drop")
	}
	b.Chains[name] = rules
	return name
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

// balance adds a chain that sends each client to its endpoint, and new ones to any, with the same
// probability. Without endpoints the name is empty.
func (b *builder) balance(kind string, endpoints []endpoint) string {
	if len(endpoints) == 0 {
		return ""
	}
	name := b.name(kind, "")
	var rules, targets []string
	for _, e := range endpoints {
		b.addHairpin(e)
		chain := b.toEndpoint(e)
		rules = append(rules, fmt.Sprintf("%s @%s goto %s", b.ip("saddr"), b.affinity(e), chain))
		targets = append(targets, "goto "+chain)
	}
	if len(endpoints) <= maxChoiceRules {
		rules = append(rules, choose(targets)...)
	} else {
		rules = append(rules, fmt.Sprintf("numgen random mod %d vmap { %s }", len(targets), numbered(targets)))
	}
	b.Chains[name] = rules
	return name
}

// maxChoiceRules is up to how many endpoints of a chain each has a rule that chooses it. More
// are in a map, which costs a packet less but a transaction more: the kernel
// goes through all that a transaction has for each map without a name.
const maxChoiceRules = 8

// numbered returns the elements of a map from numbers to values.
func numbered(values []string) string {
	elements := make([]string, len(values))
	for i, value := range values {
		elements[i] = fmt.Sprintf("%d : %s", i, value)
	}
	return strings.Join(elements, " , ")
}

// choose returns the rules that apply one of the targets, each with the same probability.
func choose(targets []string) []string {
	var rules []string
	for i, text := range targets {
		if left := len(targets) - i; left > 1 { // of which the first one
			text = fmt.Sprintf("numgen random mod %d 0 %s", left, text)
		}
		rules = append(rules, text)
	}
	return rules
}

// sticky reports whether a client's connections go to the same endpoint.
func (b *builder) sticky() bool {
	return b.service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// toEndpoint adds the chain by which clients stay with an endpoint, and returns its name.
func (b *builder) toEndpoint(e endpoint) string {
	name := b.name("endpoint", fmt.Sprintf("/%s/%d", e.address, e.port))
	b.Sets[b.affinity(e)] = timeoutOf(b.service)
	b.Chains[name] = []string{fmt.Sprintf("update @%s { %s }", b.affinity(e), b.ip("saddr")), fmt.Sprintf("meta l4proto %s dnat to %s", b.proto, e)}
	return name
}

// affinity returns the name of the set of an endpoint's clients. It has the timeout,
// which a set cannot change.
func (b *builder) affinity(e endpoint) string {
	return b.name(affinity, fmt.Sprintf("/%s/%d/%d", e.address, e.port, timeoutOf(b.service)))
}

// timeoutOf returns for how many seconds a client's connections go to the same endpoint.
func timeoutOf(s *corev1.Service) int32 {
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		return ptr.Deref(c.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

// restrictSources adds the chain that drops connections from outside the load balancer's
// source ranges, and returns the verdict that leads to it. Those of the other family restrict
// nothing, nor does a range of all addresses, as with kube-proxy. A node that has an address of
// the load balancer itself connects to it from that address, which is allowed if a range has the
// address of the node.
func (b *builder) restrictSources() string {
	var ranges []string
	fromNode := false
	for _, text := range b.service.Spec.LoadBalancerSourceRanges {
		// The API accepts spaces and leading zeros.
		_, block, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil || netutils.IsIPv6CIDR(block) != (b.family == corev1.IPv6Protocol) {
			continue
		}
		if ones, _ := block.Mask.Size(); ones == 0 {
			return ""
		}
		ranges = append(ranges, block.String())
		fromNode = fromNode || slices.ContainsFunc(b.at.Addresses, func(address string) bool { return block.Contains(net.ParseIP(address)) })
	}
	if len(ranges) == 0 {
		return ""
	}
	if fromNode {
		for _, ip := range b.ofFamily(b.loadBalancerIPs()) {
			ranges = append(ranges, ip.String())
		}
	}
	name := b.name("firewall", "")
	b.Chains[name] = []string{fmt.Sprintf("%s != { %s } drop", b.ip("saddr"), strings.Join(ranges, ", "))}
	return "goto " + name
}
