//go:build linux

package ruleset

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func TestConnectionsStayInTheZoneIfAllEndpointsHaveHintsAndOneIsForIt(t *testing.T) {
	hinted := func(address string, zones ...string) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		for _, zone := range zones {
			if e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
		return e
	}
	unready := func(e discoveryv1.Endpoint, terminating bool) discoveryv1.Endpoint {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(terminating)}
		return e
	}
	unknown := func(e discoveryv1.Endpoint) discoveryv1.Endpoint {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true)}
		return e
	}
	onNodes := func(e discoveryv1.Endpoint, nodes ...string) discoveryv1.Endpoint {
		e.Hints = e.Hints.DeepCopy()
		for _, node := range nodes {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
		return e
	}
	all := []discoveryv1.Endpoint{hinted("10.0.0.1", "east"), hinted("10.0.0.2", "west"), hinted("10.0.0.3", "north", "east")}
	for _, test := range []struct {
		rule      string
		zone      string
		endpoints []discoveryv1.Endpoint
		want      string
	}{
		{"the endpoints for the zone", "east", all, "1 3"},
		{"a node without a zone", "", all, "1 2 3"},
		{"no endpoint for the zone", "south", all, "1 2 3"},
		{"an endpoint without a hint", "east", append(all[:2:2], hinted("10.0.0.3")), "1 2 3"},
		{"unless it is not ready", "east", append(all[:2:2], unready(hinted("10.0.0.3"), false)), "1"},
		{"an endpoint for the zone that is not ready", "east", []discoveryv1.Endpoint{unready(all[0], false), all[1]}, "2"},
		{"endpoints that terminate if no other is ready, without regard to hints", "east", []discoveryv1.Endpoint{unready(all[0], true), unready(all[1], true)}, "1 2"},
		{"those of which it is not known whether they serve, too", "", []discoveryv1.Endpoint{unknown(all[0]), unready(all[1], false)}, "1"},
		{"none that terminates while one in another zone is ready", "east", []discoveryv1.Endpoint{unready(all[0], true), all[1]}, "2"},
		{"the endpoints for the node, whatever their zones", "east", []discoveryv1.Endpoint{onNodes(all[0], "there"), onNodes(all[1], "here", "there")}, "2"},
		{"those for the zone if none is for the node", "east", []discoveryv1.Endpoint{onNodes(all[0], "there"), onNodes(all[1], "there")}, "1"},
		{"those for the zone if one has no hint for nodes", "east", []discoveryv1.Endpoint{all[0], onNodes(all[1], "here")}, "1"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			slice := &discoveryv1.EndpointSlice{
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: test.endpoints,
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](80)}},
			}
			found := endpointsOf(corev1.ServicePort{Protocol: corev1.ProtocolTCP}, []*discoveryv1.EndpointSlice{slice}, corev1.IPv4Protocol, "")
			got := ""
			for _, e := range eligible(near(found, "here", test.zone), anywhere) {
				got += " " + e.address.String()[len("10.0.0."):]
			}
			if got != " "+test.want {
				t.Errorf("got%s, want %s", got, test.want)
			}
		})
	}
}

// The kernel refuses a transaction with one of these, and with it the rules of all services.
func TestWhatTheAPIDoesNotValidateOfEndpointsIsNotInATable(t *testing.T) {
	web := &corev1.Service{Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
	slice := func(address string, port int32, labels ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		s.Labels = map[string]string{}
		for _, label := range labels {
			s.Labels[label] = ""
		}
		return s
	}
	for rule, test := range map[string]struct {
		slice *discoveryv1.EndpointSlice
		want  string // its endpoint
	}{
		"the highest port":                      {slice("10.244.0.5", 65535), "10.244.0.5 . 65535"},
		"a port that is too high":               {slice("10.244.0.5", 70000), ""},
		"one that is too low":                   {slice("10.244.0.5", 0), ""},
		"a negative one":                        {slice("10.244.0.5", -1), ""},
		"an address of IPv4 written as of IPv6": {slice("::ffff:10.244.0.5", 80), "10.244.0.5 . 80"},
		"an address with leading zeros":         {slice("010.244.0.5", 80), "10.244.0.5 . 80"},
		"an address of the other family":        {slice("fd00::5", 80), ""},
		"a text that is not an address":         {slice("web", 80), ""},
		"a slice of a headless service":         {slice("10.244.0.5", 80, corev1.IsHeadlessService), ""},
		"a slice with another label":            {slice("10.244.0.5", 80, "service.kubernetes.io/service-proxy-name"), "10.244.0.5 . 80"},
	} {
		part := PartOf(Service{Service: web, Slices: []*discoveryv1.EndpointSlice{test.slice}}, corev1.IPv4Protocol, Place{})
		if got := strings.Join(part.Elements[Key{clusterIPs, "10.96.0.1 . tcp . 80"}].Endpoints, " "); got != test.want {
			t.Errorf("%s: %q, want %q; elements %v", rule, got, test.want, slices.Collect(maps.Keys(part.Elements)))
		}
	}
}
