package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"svc.dev/svc/svclet/podnetwork/plan"
)

// BenchmarkDecide plans for a node of 5,000.
func BenchmarkDecide(b *testing.B) {
	in := plan.Input{Node: "node-0", Path: func(netip.Addr) (plan.Path, bool) { return plan.Path{Link: 1, MTU: 1500, Direct: true}, true }}
	for i := range 5000 {
		address := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(88 + i>>8), byte(i), 0}), 24)
		in.Nodes = append(in.Nodes, plan.Node{Name: fmt.Sprint("node-", i), Addresses: []netip.Addr{address}, PodCIDRs: []netip.Prefix{cidr}})
	}
	for _, mode := range []string{plan.HostRoutes, plan.VXLAN} {
		in.Mode = mode
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				if p := plan.Decide(in); len(p.Problems) > 0 || len(p.Routes) != 4999 {
					b.Fatal(p.Problems)
				}
			}
		})
	}
}
