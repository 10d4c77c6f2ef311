//go:build linux

package ruleset_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/proxy/ruleset"
)

// udp returns the part of a service of UDP with a node port and an external IP. An endpoint
// after a - serves while it terminates.
func udp(name string, endpoints ...string) ruleset.Part {
	return datagrams(corev1.ProtocolUDP, name, endpoints...)
}

func datagrams(protocol corev1.Protocol, name string, endpoints ...string) ruleset.Part {
	s := ruleset.Service{Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, ExternalIPs: []string{"203.0.113.9"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Protocol: protocol, Port: 53, NodePort: 30053}},
	}}}
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Protocol: &protocol, Port: ptr.To[int32](5353)}}}
	for _, address := range endpoints {
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		if address[0] == '-' {
			e.Addresses[0], e.Conditions = address[1:], discoveryv1.EndpointConditions{Ready: new(bool), Serving: ptr.To(true), Terminating: ptr.To(true)}
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	s.Slices = []*discoveryv1.EndpointSlice{slice}
	return ruleset.PartOf(s, corev1.IPv4Protocol, ruleset.Place{Node: "here"})
}

func TestFlowsOfUDPEndUnlessTheirEndpointServes(t *testing.T) {
	const cluster, external, node, loopback, elsewhere = "10.96.0.7:53", "203.0.113.9:53", "192.0.2.1:30053", "127.0.0.1:30053", "192.0.2.2:30053"
	none := ruleset.Part{}
	for _, test := range []struct {
		rule          string
		before, after []ruleset.Part // of each service
		sent, answers string
		want          bool
	}{
		{"the endpoint has gone", []ruleset.Part{udp("a", "10.244.0.5", "10.244.0.6")}, []ruleset.Part{udp("a", "10.244.0.6")}, cluster, "10.244.0.5:5353", true},
		{"the endpoint is still there", []ruleset.Part{udp("a", "10.244.0.5", "10.244.0.6")}, []ruleset.Part{udp("a", "10.244.0.6")}, cluster, "10.244.0.6:5353", false},
		{"the endpoint terminates and serves", []ruleset.Part{udp("a", "10.244.0.5", "10.244.0.6")}, []ruleset.Part{udp("a", "-10.244.0.5", "10.244.0.6")}, cluster, "10.244.0.5:5353", false},
		{"it does not serve any more", []ruleset.Part{udp("a", "-10.244.0.5", "10.244.0.6")}, []ruleset.Part{udp("a", "10.244.0.6")}, cluster, "10.244.0.5:5353", true},
		{"another port of the address", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{udp("a")}, "10.96.0.7:54", "10.244.0.5:5353", false},
		{"the last endpoint has gone", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{udp("a")}, cluster, "10.244.0.5:5353", true},
		{"the service has gone", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{none}, cluster, "10.244.0.5:5353", true},
		{"the service has gone, and packets were not translated", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{none}, node, node, false},
		{"packets were not translated before the first endpoint", []ruleset.Part{udp("a")}, []ruleset.Part{udp("a", "10.244.0.5")}, cluster, cluster, true},
		{"the service had endpoints", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{udp("a", "10.244.0.5", "10.244.0.6")}, cluster, cluster, false},
		{"an endpoint that is not known, at the start", []ruleset.Part{none}, []ruleset.Part{udp("a", "10.244.0.5")}, external, "10.244.0.9:5353", true},
		{"one that is known, at the start", []ruleset.Part{none}, []ruleset.Part{udp("a", "10.244.0.5")}, external, "10.244.0.5:5353", false},
		{"a node port before the first endpoint", []ruleset.Part{none}, []ruleset.Part{udp("a", "10.244.0.5")}, node, node, true},
		{"a node port at a loopback address", []ruleset.Part{none}, []ruleset.Part{udp("a", "10.244.0.5")}, loopback, loopback, true},
		{"the port of another machine", []ruleset.Part{none}, []ruleset.Part{udp("a", "10.244.0.5")}, elsewhere, elsewhere, false},
		{"a node port whose endpoint has gone", []ruleset.Part{udp("a", "10.244.0.5")}, []ruleset.Part{udp("a", "10.244.0.6")}, node, "10.244.0.5:5353", true},
		{"another service that wants the address comes", []ruleset.Part{udp("a", "10.244.0.5"), none}, []ruleset.Part{udp("a", "10.244.0.5"), udp("b", "10.244.0.6")}, external, "10.244.0.5:5353", false},
		{"and changes", []ruleset.Part{udp("a", "10.244.0.5"), udp("b", "10.244.0.6")}, []ruleset.Part{udp("a", "10.244.0.5"), udp("b", "10.244.0.7")}, external, "10.244.0.5:5353", false},
		{"another service gets the address", []ruleset.Part{udp("a", "10.244.0.5"), udp("b", "10.244.0.6")}, []ruleset.Part{none, udp("b", "10.244.0.6")}, external, "10.244.0.5:5353", true},
		{"connections of TCP end by themselves", []ruleset.Part{datagrams(corev1.ProtocolTCP, "a", "10.244.0.5")}, []ruleset.Part{datagrams(corev1.ProtocolTCP, "a")}, cluster, "10.244.0.5:5353", false},
	} {
		tx, table, owners := knftables.NewFake(knftables.IPv4Family, "svc0").NewTransaction(), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}
		var stale ruleset.Stale
		for i, before := range test.before {
			table.Change(tx, owners, ruleset.Choices{}, &ruleset.Stale{}, ruleset.Change{After: before})
			table.Change(tx, owners, ruleset.Choices{}, &stale, ruleset.Change{Before: before, After: test.after[i]})
		}
		if got := stale.Has(netip.MustParseAddrPort(test.sent), netip.MustParseAddrPort(test.answers), map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}); got != test.want {
			t.Errorf("%s: %v", test.rule, got)
		}
	}
}

// The kernel's flows are dumped only after a change that may end some.
func TestNoFlowEndsWhenAnEndpointComes(t *testing.T) {
	tx, table, owners := knftables.NewFake(knftables.IPv4Family, "svc0").NewTransaction(), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}
	var first, next ruleset.Stale
	one, two := udp("a", "10.244.0.5"), udp("a", "10.244.0.5", "10.244.0.6")
	table.Change(tx, owners, ruleset.Choices{}, &first, ruleset.Change{After: one})
	table.Change(tx, owners, ruleset.Choices{}, &next, ruleset.Change{Before: one, After: two})
	if first.Empty() || !first.NodePorts() || !next.Empty() || next.NodePorts() {
		t.Errorf("the first %v, the next %v", first, next)
	}
}

// A whole table is written without what it had before.
func TestFlowsEndWhenAKeyIsMissingInTheNextTable(t *testing.T) {
	tx, table, before := knftables.NewFake(knftables.IPv4Family, "svc0").NewTransaction(), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}
	table.Change(tx, before, ruleset.Choices{}, &ruleset.Stale{}, ruleset.Change{After: udp("a", "10.244.0.5")})
	var stale ruleset.Stale
	stale.Gone(before, before)
	if !stale.Empty() {
		t.Error("keys that are there have gone")
	}
	stale.Gone(before, ruleset.Owners{})
	if !stale.Has(netip.MustParseAddrPort("10.96.0.7:53"), netip.MustParseAddrPort("10.244.0.5:5353"), nil) {
		t.Error("a flow to a service that has gone goes on")
	}
}
