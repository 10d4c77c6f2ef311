package hostloadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// state is the objects that a decision depends on.
type state struct {
	services []*corev1.Service
	nodes    []*corev1.Node
	slices   []*discoveryv1.EndpointSlice
	reserved []int
	// kept are the ports that services have kept in the last sync, by UID. It is the record of
	// those without addresses.
	kept map[types.UID][]port
}

// result is the decision about one service.
type result struct {
	service *corev1.Service
	// addresses are those of the load balancer, sorted.
	addresses []string
	// kept are the ports that it had already, and that no other service can get.
	kept []port
	// problem is the reason why there are none, if the user can do something about it.
	problem string
	// hidden are the node ports of other services that its load balancer had first.
	hidden []warning
}

// warning is what the user of a service should know.
type warning struct {
	service *corev1.Service
	message string
}

// port is a port of the nodes.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// use is what a port of the nodes is used for.
type use struct {
	service *corev1.Service
	as      string
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// decide returns the result of each service that this controller owns, and of those that
// have become another type while they had a problem. A service gets
// all of its ports or none. Of two that have a port in common, the one that has it
// already keeps it, and else the older one gets it. The age alone does not decide: the
// ports of an old service can change. A node port that was there before is not given away.
func (s *state) decide() []result {
	owned := slices.DeleteFunc(slices.Clone(s.services), func(svc *corev1.Service) bool { return !owns(svc) })
	slices.SortFunc(owned, func(a, b *corev1.Service) int {
		return cmp.Or(
			cmp.Compare(s.rank(a), s.rank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	nodePorts, used := s.nodePorts(), map[port]use{}
	results := make([]result, len(owned))
	for i, svc := range owned {
		results[i] = s.decideOne(svc, nodePorts, used)
	}
	for _, svc := range s.services {
		if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && conflicts(svc) {
			results = append(results, result{service: svc}) // its type was changed
		}
	}
	return results
}

// conflicts reports whether the status of a service says that it does not get its ports.
func conflicts(svc *corev1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, corev1.LoadBalancerPortsError)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasonConflict
}

// owns reports whether a service gets the addresses of nodes.
func owns(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.DeletionTimestamp == nil &&
		ptr.Deref(svc.Spec.LoadBalancerClass, Class) == Class
}

// rank returns 0 for a service that has all of its ports already, 1 for one that has some,
// and 2 for one that has none.
func (s *state) rank(svc *corev1.Service) int {
	has := 0
	for _, p := range svc.Spec.Ports {
		if s.holds(svc, port{p.Protocol, p.Port}) {
			has++
		}
	}
	switch has {
	case len(svc.Spec.Ports):
		return 0
	case 0:
		return 2
	}
	return 1
}

// holds reports whether the load balancer of a service has a port already: its first address
// has the record of them, or none from an earlier release. Without addresses it has those that
// it has kept.
func (s *state) holds(svc *corev1.Service, p port) bool {
	ingress := svc.Status.LoadBalancer.Ingress
	if len(ingress) == 0 {
		return slices.Contains(s.kept[svc.UID], p)
	}
	return len(ingress[0].Ports) == 0 || slices.Contains(ingress[0].Ports, corev1.PortStatus{Port: p.number, Protocol: p.protocol})
}

// ingress returns the status of the load balancer, with the record of its ports at the first
// address.
func (r *result) ingress() []corev1.LoadBalancerIngress {
	var all []corev1.LoadBalancerIngress
	for _, address := range r.addresses {
		all = append(all, corev1.LoadBalancerIngress{IP: address})
	}
	if len(all) > 0 {
		for _, p := range r.service.Spec.Ports {
			all[0].Ports = append(all[0].Ports, corev1.PortStatus{Port: p.Port, Protocol: p.Protocol})
		}
	}
	return all
}

// nodePorts returns the node ports of all services, with those of health checks.
func (s *state) nodePorts() map[port]use {
	used := map[port]use{}
	for _, svc := range s.services {
		if number := svc.Spec.HealthCheckNodePort; number != 0 {
			used[port{corev1.ProtocolTCP, number}] = use{svc, "the health check node port of"}
		}
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				used[port{p.Protocol, p.NodePort}] = use{svc, "a node port of"}
			}
		}
	}
	return used
}

// decideOne decides about a service, and adds its ports to those that are used.
func (s *state) decideOne(svc *corev1.Service, nodePorts, used map[port]use) result {
	r := result{service: svc}
	for _, p := range svc.Spec.Ports {
		wanted := port{p.Protocol, p.Port}
		by, taken := used[wanted]
		if !taken && !s.holds(svc, wanted) {
			by, taken = nodePorts[wanted]
		}
		if taken && by.service != svc {
			r.problem = fmt.Sprintf("port %s of the nodes is %s service %s/%s: choose another port", wanted, by.as, by.service.Namespace, by.service.Name)
		} else if slices.Contains(s.reserved, int(p.Port)) {
			r.problem = fmt.Sprintf("port %s of the nodes is reserved for their own programs (--%s): choose another port", wanted, ReservedFlag)
		} else if s.hasAgent(wanted) {
			r.problem = fmt.Sprintf("port %s of the nodes is that of a node's agent: choose another port", wanted)
		} else {
			continue
		}
		return r
	}
	r.addresses = s.addresses(svc)
	if requested := svc.Spec.LoadBalancerIP; requested != "" {
		ip, err := netip.ParseAddr(requested)
		if err != nil || !slices.Contains(r.addresses, ip.String()) {
			r.problem = fmt.Sprintf("spec.loadBalancerIP: %s is not an address of a node that can serve it: remove the field, or choose an address of a node", requested)
			r.addresses = nil
			if s.rank(svc) != 0 { // a service that has its ports keeps them: the address may come back
				return r
			}
		} else {
			r.addresses = []string{ip.String()}
		}
	}
	for _, p := range svc.Spec.Ports {
		at := port{p.Protocol, p.Port}
		if s.holds(svc, at) {
			r.kept = append(r.kept, at)
		}
		used[at] = use{svc, "used by"}
		if by, taken := nodePorts[at]; taken && by.service != svc && len(r.addresses) > 0 {
			r.hidden = append(r.hidden, warning{by.service, fmt.Sprintf("port %s of the nodes, %s this service, is used by the load balancer of service %s/%s, which had it first: choose another port", at, by.as, svc.Namespace, svc.Name)})
		}
	}
	return r
}

// hasAgent reports whether the agent of a node that may get services listens at a port.
func (s *state) hasAgent(p port) bool {
	return p.protocol == corev1.ProtocolTCP && slices.ContainsFunc(s.nodes, func(n *corev1.Node) bool {
		return !isExcluded(n) && n.Status.DaemonEndpoints.KubeletEndpoint.Port == p.number
	})
}

// addresses returns the addresses of a service's families at which nodes serve it.
func (s *state) addresses(svc *corev1.Service) []string {
	var found []netip.Addr
	for _, n := range s.serving(svc) {
		for _, address := range n.Status.Addresses {
			if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
				continue
			}
			if ip, err := netip.ParseAddr(address.Address); err == nil && slices.Contains(svc.Spec.IPFamilies, familyOf(ip)) {
				found = append(found, ip)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	var addresses []string
	for _, ip := range slices.Compact(found) {
		addresses = append(addresses, ip.String())
	}
	return addresses
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// serving returns the nodes that serve a service: the ready ones, or all if none is, as
// their proxies may work nevertheless; and with externalTrafficPolicy Local only those
// with an endpoint.
func (s *state) serving(svc *corev1.Service) []*corev1.Node {
	nodes := slices.DeleteFunc(slices.Clone(s.nodes), isExcluded)
	if slices.ContainsFunc(nodes, isReady) {
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !isReady(n) })
	}
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		have := s.nodesWithEndpoints(svc)
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !have[n.Name] })
	}
	return nodes
}

func isExcluded(n *corev1.Node) bool {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	return excluded || n.DeletionTimestamp != nil
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodesWithEndpoints returns the nodes that have a ready endpoint of a service.
func (s *state) nodesWithEndpoints(svc *corev1.Service) map[string]bool {
	have := map[string]bool{}
	for _, slice := range s.slices {
		_, headless := slice.Labels[corev1.IsHeadlessService] // no proxy leads to its endpoints
		if headless || slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.NodeName != nil && ptr.Deref(e.Conditions.Ready, true) {
				have[*e.NodeName] = true
			}
		}
	}
	return have
}
