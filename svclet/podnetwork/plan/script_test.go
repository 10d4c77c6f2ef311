package plan_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// TestScripts plays the scripts of testdata, for the node "here". The commands:
//
//	link NUMBER MTU PREFIX...       an interface of this machine with addresses in its networks
//	router                          other addresses are reached through a router, by the first interface
//	node NAME ADDRESS,... CIDR,...  adds a node or changes it; "-" means none. A fourth word is
//	                                the second in which it was created
//	delete NAME                     deletes a node
//	plan MODE                       prints the plan
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		s := &script{t: t, nodes: map[string]plan.Node{}}
		return s.do
	})
}

type script struct {
	t      *testing.T
	links  []link
	router bool
	nodes  map[string]plan.Node
}

type link struct {
	number, mtu int
	prefixes    []netip.Prefix
}

func (s *script) do(c golden.Command) string {
	switch c.Name {
	case "link":
		l := link{number: number(c.Args[0]), mtu: number(c.Args[1])}
		for _, text := range c.Args[2:] {
			l.prefixes = append(l.prefixes, netip.MustParsePrefix(text))
		}
		s.links = append(s.links, l)
	case "router":
		s.router = true
	case "node":
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Args[0]}}
		for _, address := range list(c.Args[1]) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: c.Args[0]})
		n.Spec.PodCIDRs = list(c.Args[2])
		if len(c.Args) > 3 {
			n.CreationTimestamp = metav1.Unix(int64(number(c.Args[3])), 0)
		}
		s.nodes[n.Name] = plan.NodeOf(n)
	case "delete":
		delete(s.nodes, c.Args[0])
	case "plan":
		in := plan.Input{Mode: c.Args[0], Node: "here", Path: s.path}
		for _, n := range s.nodes {
			in.Nodes = append(in.Nodes, n)
		}
		return show(plan.Decide(in))
	default:
		s.t.Fatalf("unknown command %q", c.Name)
	}
	return ""
}

func (s *script) path(to netip.Addr) (plan.Path, bool) {
	for _, l := range s.links {
		for _, prefix := range l.prefixes {
			if prefix.Contains(to) {
				return plan.Path{Link: l.number, MTU: l.mtu, Local: prefix.Addr() == to, Direct: true}, true
			}
		}
	}
	return plan.Path{Link: 1}, s.router
}

func show(p plan.Plan) string {
	var b bytes.Buffer
	if !p.Registered {
		return "this node is not registered yet\n"
	}
	fmt.Fprintf(&b, "own %v, all %v, MTU %d\n", p.Own, p.Ranges, p.MTU)
	if t := p.Tunnel; t != nil {
		fmt.Fprintf(&b, "tunnel from %s of link %d, with %s %v\n", t.Address, t.Link, hardware(t.MAC), t.Internal)
	}
	for _, r := range p.Routes {
		on := "the tunnel"
		if r.Link != 0 {
			on = fmt.Sprint("link ", r.Link)
		}
		fmt.Fprintf(&b, "route to %s via %s on %s\n", r.To, r.Via, on)
	}
	for _, peer := range p.Peers {
		fmt.Fprintf(&b, "peer %s with %s %v\n", peer.Node, hardware(peer.MAC), peer.Internal)
	}
	for _, problem := range p.Problems {
		fmt.Fprintf(&b, "problem of %s: %s\n", problem.Node, problem.Reason)
	}
	return b.String()
}

func hardware(m plan.MAC) net.HardwareAddr { return slices.Clone(m[:]) }

func list(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

func number(text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		panic(err)
	}
	return n
}
