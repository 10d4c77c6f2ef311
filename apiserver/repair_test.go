package apiserver

import (
	"net/netip"
	"slices"
	"testing"

	"svc.dev/svc/apis/resource"
)

func TestProblemsOfServicesWithTheirPortsAndAddresses(t *testing.T) {
	a, b := resource.Owner{Namespace: "ns", Name: "a"}, resource.Owner{Namespace: "ns", Name: "b"}
	port := func(key string) allocated { return allocatedPort(key, resource.PortRange{From: 30000, To: 30010}) }
	address := func(key string) allocated {
		return allocatedAddress(key, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")})
	}
	for rule, test := range map[string]struct {
		held     map[string][]resource.Owner
		reserved []string
		describe func(string) allocated
		want     []string
	}{
		"nothing is wrong": {held: map[string][]resource.Owner{"30000": {a}, "30010": {b}}, describe: port},
		"a port of two services": {
			held: map[string][]resource.Owner{"30000": {a, b}}, describe: port,
			want: []string{"b PortAlreadyAllocated PortAllocation: Port 30000 was assigned to multiple services; please recreate service"},
		},
		"a port that was not reserved": {
			held: map[string][]resource.Owner{"30000": {a, b}}, reserved: []string{"30000"}, describe: port,
			want: []string{
				"a PortNotAllocated PortAllocation: Port 30000 is not allocated; repairing",
				"b PortAlreadyAllocated PortAllocation: Port 30000 was assigned to multiple services; please recreate service",
			},
		},
		"ports outside of the range": {
			held: map[string][]resource.Owner{"29999": {a}, "30011": {b}}, reserved: []string{"30011"}, describe: port,
			want: []string{
				"a PortOutOfRange PortAllocation: Port 29999 is not within the port range 30000-30010; please recreate service",
				"b PortOutOfRange PortAllocation: Port 30011 is not within the port range 30000-30010; please recreate service",
			},
		},
		"addresses": {
			held: map[string][]resource.Owner{"10.0.0.9": {a, b}, "10.0.1.9": {a}, "fd00::9": {b}}, reserved: []string{"10.0.0.9"}, describe: address,
			want: []string{
				"a ClusterIPNotAllocated ClusterIPAllocation: Cluster IP [IPv4]:10.0.0.9 is not allocated; repairing",
				"b ClusterIPAlreadyAllocated ClusterIPAllocation: Cluster IP [IPv4]:10.0.0.9 was assigned to multiple services; please recreate service",
				"a ClusterIPOutOfRange ClusterIPAllocation: Cluster IP [IPv4]:10.0.1.9 is not within the service CIDR 10.0.0.0/24; please recreate service",
				"b ClusterIPOutOfRange ClusterIPAllocation: Cluster IP [IPv6]:fd00::9 is of an IP family without a service CIDR; please recreate service",
			},
		},
	} {
		var got []string
		for _, p := range serviceProblems(test.held, test.reserved, test.describe) {
			got = append(got, p.service.Name+" "+p.reason+" "+p.action+": "+p.note)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q\nwant %q", rule, got, test.want)
		}
	}
}
