package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// The modes of a pod network.
const (
	// None leaves the pods of other nodes to another network.
	None = "none"
	// HostRoutes routes each node's pod CIDRs to its address, on a network that this
	// machine and the node share.
	HostRoutes = "host-routes"
	// VXLAN puts packets to pods of other nodes into UDP packets to their nodes.
	VXLAN = "vxlan"
)

// Modes returns all modes.
func Modes() []string { return []string{HostRoutes, VXLAN, None} }

// Overhead4 and Overhead6 are the bytes that VXLAN adds to a packet between nodes with
// IPv4 and IPv6 addresses: the headers of IP, UDP, VXLAN and Ethernet.
const (
	Overhead4 = 50
	Overhead6 = 70
)

// Node is what a pod network needs of a Node.
type Node struct {
	Name string
	// Created is when the Node was created, in seconds since 1970.
	Created int64
	// Addresses are the internal addresses, the primary one first.
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
}

// Path is how this machine reaches an address.
type Path struct {
	// Link is the interface, which has the MTU in bytes.
	Link, MTU int
	// Local addresses are this machine's own.
	Local bool
	// Direct is false behind a router.
	Direct bool
}

// Input is what a plan depends on.
type Input struct {
	Mode string
	// Node is the name of this node, which is one of Nodes if it is registered.
	Node  string
	Nodes []Node
	// Path returns false for an address that this machine does not reach.
	Path func(netip.Addr) (Path, bool)
}

// Plan is what this machine must have.
type Plan struct {
	// Registered is false if this node is not known, or has no address yet: then there
	// is no plan.
	Registered bool
	// Own are this node's pod CIDRs, Ranges those of all nodes, sorted and without overlaps.
	Own, Ranges []netip.Prefix
	// MTU is that of pods; 0 if it is not known.
	MTU int
	// Tunnel is nil without VXLAN.
	Tunnel *Tunnel
	Routes []Route
	Peers  []Peer
	// Problems are the nodes whose pods this machine does not reach, with the reason.
	Problems []Problem
}

// Route leads to the pods of another node.
type Route struct {
	To netip.Prefix
	// Via is the address of the node or, with VXLAN, of its end of the tunnel, which is
	// taken to be on the link.
	Via netip.Addr
	// Link is the interface; 0 means the tunnel.
	Link int
}

// Tunnel is this machine's end of the tunnels.
type Tunnel struct {
	Link     int        // the interface of Address
	MTU      int        // that of pods
	Address  netip.Addr // the source of packets between nodes
	MAC      MAC
	Internal []netip.Addr // the addresses of the end itself, one of each family
}

// Peer is the end of a tunnel at another node.
type Peer struct {
	MAC      MAC
	Node     netip.Addr
	Internal []netip.Addr
}

// Problem says why pods of a node are not reached.
type Problem struct{ Node, Reason string }

// Decide returns the plan.
func Decide(in Input) Plan {
	p := planner{Input: in}
	nodes := slices.SortedFunc(slices.Values(in.Nodes), func(a, b Node) int {
		// This node comes first, and then the oldest one: no other node gets its addresses.
		return cmp.Or(compareBool(b.Name == in.Node, a.Name == in.Node), cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name))
	})
	if len(nodes) == 0 || nodes[0].Name != in.Node || len(nodes[0].Addresses) == 0 {
		return Plan{}
	}
	p.self = nodes[0]
	for rank, n := range nodes {
		for _, a := range n.Addresses {
			p.addresses = append(p.addresses, ranked{a, rank})
		}
	}
	slices.SortFunc(p.addresses, func(a, b ranked) int { return a.address.Compare(b.address) })
	p.plan.Registered = true
	p.planSelf()
	for rank, n := range nodes[1:] {
		if reason := p.add(n, rank+1); reason != "" {
			p.plan.Problems = append(p.plan.Problems, Problem{n.Name, reason})
		}
	}
	p.plan.Ranges = Compact(p.plan.Ranges)
	return p.plan
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

type planner struct {
	Input
	self Node
	// addresses are those of all nodes, sorted.
	addresses []ranked
	taken     []owned // sorted, without overlaps
	plan      Plan
}

// ranked is the address of a node. Rank 0 is this node, and the others follow by their age: a
// node, which writes its own addresses, takes nothing from this one and from older ones.
type ranked struct {
	address netip.Addr
	rank    int
}

// owned is the pod CIDR of a node.
type owned struct {
	cidr netip.Prefix
	node string
}

// search returns where a CIDR is in taken, or would be.
func (p *planner) search(cidr netip.Prefix) int {
	at, _ := slices.BinarySearchFunc(p.taken, cidr, func(o owned, cidr netip.Prefix) int { return o.cidr.Addr().Compare(cidr.Addr()) })
	return at
}

// take records the pod CIDRs of a node.
func (p *planner) take(n Node) {
	for _, cidr := range n.PodCIDRs {
		p.taken = slices.Insert(p.taken, p.search(cidr), owned{cidr, n.Name})
	}
	p.plan.Ranges = append(p.plan.Ranges, n.PodCIDRs...)
}

// planSelf plans what does not depend on other nodes.
func (p *planner) planSelf() {
	p.plan.Own = p.self.PodCIDRs
	p.take(p.self)
	address := p.self.Addresses[0]
	path, found := p.Path(address)
	if !found {
		return
	}
	p.plan.MTU = path.MTU
	if p.Mode != VXLAN {
		return
	}
	p.plan.MTU -= Overhead4
	if address.Is6() {
		p.plan.MTU -= Overhead6 - Overhead4
	}
	p.plan.Tunnel = &Tunnel{Link: path.Link, MTU: p.plan.MTU, Address: address, MAC: macOf(address), Internal: internal(p.self.PodCIDRs)}
}

// add plans for another node. It returns why its pods are not reached, or "".
func (p *planner) add(n Node, rank int) string {
	if len(n.PodCIDRs) == 0 || len(n.Addresses) == 0 {
		return "" // it is not ready, and has no pods
	}
	for _, a := range n.Addresses {
		if o, found := p.overlapping(netip.PrefixFrom(a, a.BitLen())); found {
			return fmt.Sprintf("its address %s is in the pod CIDR %s of node %s", a, o.cidr, o.node)
		}
	}
	for _, cidr := range n.PodCIDRs {
		if reason := p.refuse(cidr, rank); reason != "" {
			return reason
		}
	}
	local := slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool {
		path, found := p.Path(a)
		return found && path.Local
	})
	var reason string
	switch {
	case local: // another node on this machine, with a bridge of its own
	case p.Mode == VXLAN:
		reason = p.tunnelTo(n)
	default:
		reason = p.routeTo(n)
	}
	if reason == "" {
		p.take(n)
	}
	return reason
}

// refuse returns why a CIDR cannot be that of the pods of the node with this rank, or "". A
// route to it would take away connections of others.
func (p *planner) refuse(cidr netip.Prefix, rank int) string {
	at, _ := slices.BinarySearchFunc(p.addresses, cidr.Addr(), func(a ranked, first netip.Addr) int { return a.address.Compare(first) })
	for _, a := range p.addresses[at:] {
		if !cidr.Contains(a.address) {
			break
		}
		if a.rank <= rank {
			return fmt.Sprintf("its pod CIDR %s contains %s, the address of a node", cidr, a.address)
		}
	}
	if o, found := p.overlapping(cidr); found {
		return fmt.Sprintf("its pod CIDR %s overlaps with %s of node %s", cidr, o.cidr, o.node)
	}
	return ""
}

// overlapping returns a pod CIDR in taken that overlaps with another one.
func (p *planner) overlapping(cidr netip.Prefix) (owned, bool) {
	at := p.search(cidr)
	for _, o := range p.taken[max(0, at-1):min(len(p.taken), at+1)] {
		if o.cidr.Overlaps(cidr) {
			return o, true
		}
	}
	return owned{}, false
}

// routeTo plans the routes to a node on the same network.
func (p *planner) routeTo(n Node) string {
	var routes []Route
	for _, cidr := range n.PodCIDRs {
		at := slices.IndexFunc(n.Addresses, func(a netip.Addr) bool { return a.Is6() == cidr.Addr().Is6() })
		if at < 0 {
			return fmt.Sprintf("it has no internal address of the IP family of its pod CIDR %s", cidr)
		}
		via := n.Addresses[at]
		path, found := p.Path(via)
		if !found || !path.Direct {
			return fmt.Sprintf("its address %s is not on a network of this machine: start all nodes with --pod-network=%s", via, VXLAN)
		}
		routes = append(routes, Route{cidr, via, path.Link})
	}
	p.plan.Routes = append(p.plan.Routes, routes...)
	return ""
}

// tunnelTo plans the tunnel to a node.
func (p *planner) tunnelTo(n Node) string {
	if p.plan.Tunnel == nil {
		return fmt.Sprintf("this node's address %s is not an address of this machine", p.self.Addresses[0])
	}
	at := slices.IndexFunc(n.Addresses, func(a netip.Addr) bool { return a.Is6() == p.plan.Tunnel.Address.Is6() })
	if at < 0 {
		return fmt.Sprintf("it has no internal address of the IP family of this node's address %s", p.plan.Tunnel.Address)
	}
	node := n.Addresses[at]
	p.plan.Peers = append(p.plan.Peers, Peer{macOf(node), node, internal(n.PodCIDRs)})
	for _, cidr := range n.PodCIDRs {
		p.plan.Routes = append(p.plan.Routes, Route{To: cidr, Via: cidr.Addr()})
	}
	return ""
}

// internal returns the addresses of an end of the tunnels: the first of each pod CIDR,
// which no pod gets.
func internal(cidrs []netip.Prefix) []netip.Addr {
	addresses := make([]netip.Addr, len(cidrs))
	for i, cidr := range cidrs {
		addresses[i] = cidr.Addr()
	}
	return addresses
}

// Compact returns the prefixes sorted, without those that others contain.
func Compact(prefixes []netip.Prefix) []netip.Prefix {
	prefixes = slices.Clone(prefixes)
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.CompactFunc(prefixes, func(a, b netip.Prefix) bool { return a.Contains(b.Addr()) })
}
