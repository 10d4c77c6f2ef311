//go:build linux

package ruleset

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Datagrams are addresses of UDP, each that of a service or of an endpoint.
type Datagrams map[Datagram]bool

// Datagram is an address that UDP packets are sent to.
type Datagram struct {
	Address netip.AddrPort
	Kind    DatagramKind
}

// DatagramKind says what has an address.
type DatagramKind int

const (
	toService DatagramKind = iota
	toEndpoint
)

// datagrams adds an address, if the port is one of UDP.
func (b *builder) datagrams(address string, port int32, kind DatagramKind) {
	if b.port.Protocol != corev1.ProtocolUDP {
		return
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		b.Datagrams[Datagram{netip.AddrPortFrom(ip, uint16(port)), kind}] = true //nolint:gosec // a port
	}
}

// Stale are flows of UDP that the kernel would keep after the rules have changed: a flow
// has no end, and its first packet decides where all go.
type Stale struct {
	// endpoints have gone, and services have endpoints now that had none.
	endpoints, services map[netip.AddrPort]bool
}

// Add adds the flows that end when a part replaces another.
func (s *Stale) Add(before, after Part) {
	if s.endpoints == nil {
		s.endpoints, s.services = map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	}
	for d := range before.Datagrams {
		if d.Kind == toEndpoint && !after.Datagrams[d] {
			s.endpoints[d.Address] = true
		}
	}
	for d := range after.Datagrams {
		if d.Kind == toService && !before.Datagrams[d] {
			s.services[d.Address] = true
		}
	}
}

// Empty reports whether there are none.
func (s *Stale) Empty() bool { return len(s.endpoints)+len(s.services) == 0 }

// Has reports whether a flow of UDP is stale: sent is where its packets were sent to, and
// answers where its answers come from.
func (s *Stale) Has(sent, answers netip.AddrPort) bool {
	return sent != answers && s.endpoints[answers] || sent == answers && s.services[sent]
}
