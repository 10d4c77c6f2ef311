package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// objects are what both proxies are given.
type objects struct {
	node     corev1.Node
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

// endpoints are the addresses of pods: the first ones are on the node.
var endpoints = ipv4.endpoints

const (
	nodeName = "here"
	zone     = "east"
	// the ports of pods
	podPort = 8080
)

// family has the addresses of the network that are of an IP family.
type family struct {
	name      corev1.IPFamily
	endpoints []string
	// pod is a client on the node, and outside one elsewhere.
	pod, outside string
	// bridge, node and far are the node's own, on the networks of its pods, of outside and of
	// farNode, which has the pods of the other node.
	bridge, node, far, farNode string
	podRange, farRange         string
	// bits is the length of each network's prefix.
	bits int
	// clusterIP, externalIP and ingress are those of a service by its number.
	clusterIP, externalIP, ingress string
	// sourceRanges are some in which pod, outside or no client is.
	sourceRanges []string
}

var (
	ipv4 = family{
		name: corev1.IPv4Protocol, endpoints: []string{"10.244.0.10", "10.244.0.11", "10.244.1.10", "10.244.1.11"},
		pod: "10.244.0.2", outside: "192.0.2.9", bridge: "10.244.0.1", node: "192.0.2.1", far: "192.0.3.1", farNode: "192.0.3.2",
		podRange: "10.244.0.0/24", farRange: "10.244.1.0/24", bits: 24,
		clusterIP: "10.96.0.%d", externalIP: "198.51.100.%d", ingress: "203.0.113.%d",
		sourceRanges: []string{"192.0.2.0/24", "10.244.0.0/16", "172.16.0.0/12"},
	}
	ipv6 = family{
		name: corev1.IPv6Protocol, endpoints: []string{"fd00:0:244::10", "fd00:0:244::11", "fd00:0:244:1::10", "fd00:0:244:1::11"},
		pod: "fd00:0:244::2", outside: "2001:db8:2::9", bridge: "fd00:0:244::1", node: "2001:db8:2::1", far: "2001:db8:3::1", farNode: "2001:db8:3::2",
		podRange: "fd00:0:244::/64", farRange: "fd00:0:244:1::/64", bits: 64,
		clusterIP: "fd00:96::%x", externalIP: "2001:db8:51::%x", ingress: "2001:db8:113::%x",
		sourceRanges: []string{"2001:db8:2::/64", "fd00:0:244::/48", "2001:db8:172::/48"},
	}
	families = map[corev1.IPFamily]family{ipv4.name: ipv4, ipv6.name: ipv6}
)

// in returns an address with the length of its network's prefix.
func (f family) in(address string) string { return fmt.Sprintf("%s/%d", address, f.bits) }

// published is a service with its endpoint slices.
type published struct {
	service corev1.Service
	slices  []discoveryv1.EndpointSlice
}

// history makes services of all kinds, by chance, and changes some at each step.
type history struct {
	random *rand.Rand
	node   corev1.Node
	have   map[int]published
	// step is how often they have changed, and named how many services each number has had.
	step  int
	named map[int]int
	count int
}

func newHistory(random *rand.Rand, count int) *history {
	h := &history{random: random, node: newNode(), have: map[int]published{}, named: map[int]int{}, count: count}
	for i := range count {
		h.have[i+1] = h.publish(i + 1)
	}
	return h
}

func newNode() corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node", ResourceVersion: "1", Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: nodeName}}}
	n.Spec.PodCIDRs, n.Spec.PodCIDR = []string{ipv4.podRange, ipv6.podRange}, ipv4.podRange
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ipv4.node}, {Type: corev1.NodeInternalIP, Address: ipv6.node}, {Type: corev1.NodeHostName, Address: nodeName}}
	return n
}

// change deletes some services, gives the addresses of some to others, and changes some, or
// only their endpoints.
func (h *history) change() {
	h.step++
	for i := 1; i <= h.count; i++ {
		p, exists := h.have[i]
		switch chance := h.random.IntN(12); {
		case !exists || chance < 2:
			h.named[i]++
			h.have[i] = h.publish(i)
		case chance == 2:
			delete(h.have, i)
		case chance < 5: // its cluster IPs cannot change
			h.have[i] = h.withEndpoints(newService(h.random, p.service.Name, i, p.service.Spec.IPFamilies))
		case chance < 8:
			h.have[i] = h.withEndpoints(p.service)
		}
	}
}

// objects returns the present ones. The last service is one that no step before has had, with
// all endpoints: a proxy that leads to it has got everything else.
func (h *history) objects() objects {
	o := objects{node: h.node}
	for _, i := range append(slices.Sorted(maps.Keys(h.have)), h.count+1+h.step) {
		p, found := h.have[i]
		if !found {
			p = h.last(i)
		}
		o.services, o.slices = append(o.services, p.service), append(o.slices, p.slices...)
	}
	return o
}

func (h *history) last(i int) published {
	s := plainService(fmt.Sprint("last-", h.step), i, corev1.ProtocolTCP, []corev1.IPFamily{ipv4.name, ipv6.name})
	p := published{service: s}
	for _, name := range s.Spec.IPFamilies {
		f := families[name]
		slice := newSlice(s, f)
		for _, address := range f.endpoints {
			slice.Endpoints = append(slice.Endpoints, newEndpoint(nil, address, true, false))
		}
		p.slices = append(p.slices, slice)
	}
	return p
}

func (h *history) publish(i int) published {
	of := [][]corev1.IPFamily{{ipv4.name}, {ipv6.name}, {ipv4.name, ipv6.name}}[h.random.IntN(3)]
	return h.withEndpoints(newService(h.random, fmt.Sprintf("web-%d-%d", i, h.named[i]), i, of))
}

func (h *history) withEndpoints(s corev1.Service) published {
	p := published{service: s}
	hinted := h.random.IntN(3) == 0
	for _, name := range s.Spec.IPFamilies {
		slice := newSlice(s, families[name])
		for _, address := range families[name].endpoints {
			if h.random.IntN(2) == 0 {
				slice.Endpoints = append(slice.Endpoints, newEndpoint(h.random, address, false, hinted))
			}
		}
		p.slices = append(p.slices, slice)
	}
	return p
}

func newSlice(s corev1.Service, f family) discoveryv1.EndpointSlice {
	name := fmt.Sprint(s.Name, "-", f.bits)
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name, UID: types.UID(name),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressType(f.name),
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](podPort), Protocol: ptr.To(s.Spec.Ports[0].Protocol)}},
	}
}

// plainService is a service of cluster IPs.
func plainService(name string, i int, protocol corev1.Protocol, of []corev1.IPFamily) corev1.Service {
	s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, IPFamilies: of, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		Ports:                 []corev1.ServicePort{{Protocol: protocol, Port: 80, TargetPort: intstr.FromInt32(podPort)}},
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
	}
	if len(of) > 1 {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, name := range of {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf(families[name].clusterIP, i))
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return s
}

func newService(random *rand.Rand, name string, i int, of []corev1.IPFamily) corev1.Service {
	one := func(chance int) bool { return random.IntN(chance) == 0 }
	protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[random.IntN(4)]
	s := plainService(name, i, protocol, of)
	if one(4) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if one(3) {
		for _, name := range of {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf(families[name].externalIP, i))
		}
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if one(2) {
		s.Spec.Type, s.Spec.Ports[0].NodePort, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, int32(30000+i), corev1.ServiceExternalTrafficPolicyCluster
		if one(2) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if one(2) {
			balance(random, &s, i)
		}
	}
	if one(5) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](600)}}
	}
	return s
}

// balance gives a service load balancers.
func balance(random *rand.Rand, s *corev1.Service, i int) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	guarded, which := random.IntN(2) == 0, random.IntN(3)
	mode := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}[random.IntN(3)]
	for _, name := range s.Spec.IPFamilies {
		f := families[name]
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf(f.ingress, i), IPMode: &mode})
		if guarded {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, f.sourceRanges[which])
		}
	}
}

func newEndpoint(random *rand.Rand, address string, ready, hinted bool) discoveryv1.Endpoint {
	node := "there"
	if slices.Contains(ipv4.endpoints[:2], address) || slices.Contains(ipv6.endpoints[:2], address) {
		node = nodeName
	}
	e := discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}}
	switch {
	case ready:
	case random.IntN(4) == 0: // it terminates
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	case random.IntN(6) == 0: // it does not work
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(false)}
	}
	if hinted && random.IntN(8) > 0 {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: []string{zone, "west"}[random.IntN(2)]}}}
		if random.IntN(4) > 0 {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: []string{nodeName, "there"}[random.IntN(2)]}}
		}
	}
	return e
}
