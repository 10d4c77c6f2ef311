//go:build linux

package ruleset

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Datagrams are the packets of UDP that are sent to a key of a map.
type Datagrams struct {
	// Sent is where they are sent to. A node port has no address: it is at each of the node.
	Sent netip.AddrPort
	// Endpoints are those of the port that serve, also those that get no new flows.
	Endpoints map[netip.AddrPort]bool
}

// datagrams returns the packets that are sent to an address and port, if it is one of UDP.
func (b *builder) datagrams(address netip.Addr, port int32) *Datagrams {
	if b.port.Protocol != corev1.ProtocolUDP {
		return nil
	}
	if b.serving == nil {
		b.serving = map[netip.AddrPort]bool{}
		for _, e := range b.all {
			b.serving[netip.AddrPortFrom(e.address, uint16(e.port))] = true //nolint:gosec // a port
		}
	}
	return &Datagrams{netip.AddrPortFrom(address, uint16(port)), b.serving} //nolint:gosec // a port
}

// Stale are flows of UDP that the kernel would keep after the rules have changed: a flow
// has no end, and its first packet decides where all go.
type Stale struct {
	// endpoints are, by where packets are sent to, those to which flows may go on.
	endpoints map[netip.AddrPort]map[netip.AddrPort]bool
	// Postponed flows could not be ended. The next one that is added ends it.
	Postponed bool
}

// Gone adds the flows to the keys that no service owns any more.
func (s *Stale) Gone(before, after Owners) {
	for key := range before {
		if after.datagrams(key) == nil {
			s.add(key, before.datagrams(key), after)
		}
	}
}

// add adds the flows to a key that end when its packets before are those of its owner now.
func (s *Stale) add(key Key, before *Datagrams, owners Owners) {
	after := owners.datagrams(key)
	var sent netip.AddrPort
	switch {
	case after != nil:
		sent = after.Sent
	case before != nil:
		sent = before.Sent
	default:
		return
	}
	if _, found := s.endpoints[sent]; !found && !ends(before, after) {
		return
	}
	endpoints := map[netip.AddrPort]bool{}
	for _, name := range []string{clusterIPs, externalIPs, nodePorts} { // an external IP may be a cluster IP
		if of := owners.datagrams(Key{name, key.Fields}); of != nil {
			maps.Copy(endpoints, of.Endpoints)
		}
	}
	if s.endpoints == nil {
		s.endpoints = map[netip.AddrPort]map[netip.AddrPort]bool{}
	}
	s.endpoints[sent], s.Postponed = endpoints, false
}

// ends reports whether flows may end: an endpoint has gone, or there were none before.
func ends(before, after *Datagrams) bool {
	if before == nil || after == nil {
		return true
	}
	for e := range before.Endpoints {
		if !after.Endpoints[e] {
			return true
		}
	}
	return false
}

// Empty reports whether there are none.
func (s *Stale) Empty() bool { return len(s.endpoints) == 0 }

// NodePorts reports whether there are some that are sent to node ports.
func (s *Stale) NodePorts() bool {
	for sent := range s.endpoints {
		if !sent.Addr().IsValid() {
			return true
		}
	}
	return false
}

// Has reports whether a flow of UDP is stale: sent is where its packets were sent to, and
// answers where its answers come from; node are the node's addresses besides the loopback ones. A
// flow that was not translated ends if there are endpoints for it.
func (s *Stale) Has(sent, answers netip.AddrPort, node map[netip.Addr]bool) bool {
	endpoints, found := s.endpoints[sent]
	if !found && (node[sent.Addr()] || sent.Addr().IsLoopback()) {
		endpoints, found = s.endpoints[netip.AddrPortFrom(netip.Addr{}, sent.Port())]
	}
	return found && !endpoints[answers] && (sent != answers || len(endpoints) > 0)
}
