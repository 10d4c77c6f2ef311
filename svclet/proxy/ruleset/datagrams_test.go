//go:build linux

package ruleset_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/proxy/ruleset"
)

func TestFlowsOfUDPEndWithTheirEndpointAndWithTheFirstEndpoint(t *testing.T) {
	part := func(protocol corev1.Protocol, endpoints ...string) ruleset.Part {
		s := ruleset.Service{Service: &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Protocol: protocol, Port: 53}},
		}}}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Protocol: &protocol, Port: ptr.To[int32](5353)}}}
		for _, address := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		s.Slices = []*discoveryv1.EndpointSlice{slice}
		return ruleset.PartOf(s, corev1.IPv4Protocol, ruleset.Place{Node: "here"})
	}
	const udp, tcp = corev1.ProtocolUDP, corev1.ProtocolTCP
	for _, test := range []struct {
		rule          string
		before, after ruleset.Part
		answers       string // of the service's packets
		want          bool
	}{
		{"the endpoint has gone", part(udp, "10.244.0.5", "10.244.0.6"), part(udp, "10.244.0.6"), "10.244.0.5:5353", true},
		{"the endpoint is still there", part(udp, "10.244.0.5", "10.244.0.6"), part(udp, "10.244.0.6"), "10.244.0.6:5353", false},
		{"another port of the address", part(udp, "10.244.0.5"), part(udp), "10.244.0.5:53", false},
		{"the service has gone", part(udp, "10.244.0.5"), ruleset.Part{}, "10.244.0.5:5353", true},
		{"packets were not translated before the first endpoint", part(udp), part(udp, "10.244.0.5"), "10.96.0.7:53", true},
		{"the service had endpoints", part(udp, "10.244.0.5"), part(udp, "10.244.0.5", "10.244.0.6"), "10.96.0.7:53", false},
		{"connections of TCP end by themselves", part(tcp, "10.244.0.5"), part(tcp), "10.244.0.5:5353", false},
	} {
		var stale ruleset.Stale
		stale.Add(test.before, test.after)
		if got := stale.Has(netip.MustParseAddrPort("10.96.0.7:53"), netip.MustParseAddrPort(test.answers)); got != test.want {
			t.Errorf("%s: %v", test.rule, got)
		}
	}
}
