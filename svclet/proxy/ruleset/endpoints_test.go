//go:build linux

package ruleset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	const mode, hints = corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints
	auto := map[string]string{mode: "Auto"}
	all := []discoveryv1.Endpoint{hinted("10.0.0.1", "east"), hinted("10.0.0.2", "west"), hinted("10.0.0.3", "north", "east")}
	for _, test := range []struct {
		rule        string
		annotations map[string]string
		zone        string
		endpoints   []discoveryv1.Endpoint
		want        string
	}{
		{"the endpoints for the zone", auto, "east", all, "1 3"},
		{"in lower case", map[string]string{mode: "auto"}, "west", all, "2"},
		{"the deprecated annotation", map[string]string{hints: "auto"}, "west", all, "2"},
		{"the deprecated annotation has precedence", map[string]string{hints: "Disabled", mode: "Auto"}, "west", all, "1 2 3"},
		{"without the annotation all", nil, "west", all, "1 2 3"},
		{"another value means nothing", map[string]string{mode: "PreferZone"}, "west", all, "1 2 3"},
		{"a node without a zone", auto, "", all, "1 2 3"},
		{"no endpoint for the zone", auto, "south", all, "1 2 3"},
		{"an endpoint without a hint", auto, "east", append(all[:2:2], hinted("10.0.0.3")), "1 2 3"},
		{"unless it is not ready", auto, "east", append(all[:2:2], unready(hinted("10.0.0.3"), false)), "1"},
		{"an endpoint for the zone that is not ready", auto, "east", []discoveryv1.Endpoint{unready(all[0], false), all[1]}, "2"},
		{"endpoints that terminate if no other is ready, without regard to hints", auto, "east", []discoveryv1.Endpoint{unready(all[0], true), unready(all[1], true)}, "1 2"},
		{"none that terminates while one in another zone is ready", auto, "east", []discoveryv1.Endpoint{unready(all[0], true), all[1]}, "2"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			slice := &discoveryv1.EndpointSlice{
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: test.endpoints,
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](80)}},
			}
			found := endpointsOf(corev1.ServicePort{Protocol: corev1.ProtocolTCP}, []*discoveryv1.EndpointSlice{slice}, corev1.IPv4Protocol, "")
			got := ""
			for _, e := range eligible(near(found, service, test.zone), anywhere) {
				got += " " + e.address.String()[len("10.0.0."):]
			}
			if got != " "+test.want {
				t.Errorf("got%s, want %s", got, test.want)
			}
		})
	}
}
