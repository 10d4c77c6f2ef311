package proxy

import (
	"fmt"
	"math/rand/v2"

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
var endpoints = []string{"10.244.0.10", "10.244.0.11", "10.244.1.10", "10.244.1.11"}

const (
	nodeName = "here"
	zone     = "east"
	// the ports of pods
	podPort = 8080
)

// newObjects returns services of all kinds, by chance. The first one has all endpoints.
func newObjects(random *rand.Rand, count int) objects {
	o := objects{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node", ResourceVersion: "1", Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: nodeName}}}}
	o.node.Spec.PodCIDRs, o.node.Spec.PodCIDR = []string{"10.244.0.0/24"}, "10.244.0.0/24"
	o.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: nodeName}}
	for i := range count {
		s := newService(random, i)
		o.services = append(o.services, s)
		slice := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: "1",
				Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](podPort), Protocol: &s.Spec.Ports[0].Protocol}},
		}
		hinted := i > 0 && random.IntN(3) == 0
		for _, address := range endpoints {
			if i == 0 || random.IntN(2) == 0 {
				slice.Endpoints = append(slice.Endpoints, newEndpoint(random, address, i == 0, hinted))
			}
		}
		o.slices = append(o.slices, slice)
	}
	return o
}

func newService(random *rand.Rand, i int) corev1.Service {
	one := func(chance int) bool { return i > 0 && random.IntN(chance) == 0 }
	ip := func(third int) string { return fmt.Sprintf("10.96.%d.%d", third, i+1) }
	s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint("web-", i)), ResourceVersion: "1"}}
	protocol := corev1.ProtocolTCP
	if one(3) {
		protocol = corev1.ProtocolUDP
	}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip(0), ClusterIPs: []string{ip(0)}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		Ports:                 []corev1.ServicePort{{Protocol: protocol, Port: 80, TargetPort: intstr.FromInt32(podPort)}},
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
	}
	if one(4) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if one(3) {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", i+1)}
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if one(2) {
		s.Spec.Type, s.Spec.Ports[0].NodePort, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, int32(30000+i), corev1.ServiceExternalTrafficPolicyCluster
		if one(2) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if one(2) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", i+1), IPMode: ptr.To([]corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}[random.IntN(3)])}}
			s.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
			if one(2) {
				s.Spec.LoadBalancerSourceRanges = [][]string{{"192.0.2.0/24"}, {"10.244.0.0/16"}, {"172.16.0.0/12"}}[random.IntN(3)]
			}
		}
	}
	if one(5) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](600)}}
	}
	return s
}

func newEndpoint(random *rand.Rand, address string, ready, hinted bool) discoveryv1.Endpoint {
	node := "there"
	if address == endpoints[0] || address == endpoints[1] {
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
