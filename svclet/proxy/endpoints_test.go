//go:build linux

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/services"
)

// echoClient answers datagrams at an address of the loopback interface with that address and
// that of the client.
func echoClient(t *testing.T, address string) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(address)), Flags: unix.IFA_F_NODAD})
	}
	var c net.PacketConn
	if err == nil {
		c, err = net.ListenPacket("udp", net.JoinHostPort(address, "5353"))
	}
	if err != nil {
		t.Error(err)
		return
	}
	ended := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-ended })
	go func() {
		defer close(ended)
		buffer := make([]byte, 16)
		for {
			_, client, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(address+" "+client.String()), client) // the client reports what it misses
		}
	}()
}

// askFrom returns what a server of an address and port answers to a new client at an address: the server's
// address, and whether it has seen that of the client.
func askFrom(t *testing.T, client, ip string, port uint16) (server string, seen bool) {
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), port)))
	if err != nil {
		t.Error(err)
		return "", false
	}
	defer c.Close()
	server, from, _ := strings.Cut(ask(c), " ")
	return server, from == c.LocalAddr().String()
}

// strictTables fails a test when a change is refused.
type strictTables struct {
	knftables.Interface
	t *testing.T
}

func (s strictTables) Run(ctx context.Context, tx *knftables.Transaction) error {
	err := s.Interface.Run(ctx, tx)
	if err != nil {
		s.t.Errorf("a change is refused: %v", err)
	}
	return err
}

// The whole table would be written after a refusal.
func TestANewNumberOfEndpointsChangesTheTableInTheKernel(t *testing.T) {
	for at, test := range []struct {
		family             corev1.IPFamily
		of                 discoveryv1.AddressType
		ip, external, base string
	}{
		{corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, "10.96.0.1", "203.0.113.9", "10.244.0."},
		{corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, "fd00:96::1", "2001:db8::9", "fd00:244::"},
	} {
		netnstest.Run(t, "nft", func(t *testing.T) {
			store := services.New()
			p := newKernelProxy(t, store)
			if p == nil {
				return
			}
			for _, table := range p.tables {
				table.nft = strictTables{table.nft, t}
			}
			names := service("names", test.ip)
			names.Spec.IPFamilies, names.Spec.ExternalIPs, names.Spec.Ports = []corev1.IPFamily{test.family}, []string{test.external}, nil
			endpoints := slice("names-1", "names", "")
			endpoints.AddressType, endpoints.Ports, endpoints.Endpoints = test.of, nil, nil
			for i, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
				port := fmt.Sprint("port-", i)
				names.Spec.Ports = append(names.Spec.Ports, corev1.ServicePort{Name: port, Protocol: protocol, Port: 53, NodePort: 30053})
				endpoints.Ports = append(endpoints.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: &protocol, Port: ptr.To[int32](5353)})
			}
			if err := store.Services().Replace([]any{names}, ""); err != nil {
				t.Error(err)
			}
			for n := 1; n <= 10; n++ {
				endpoints = endpoints.DeepCopy()
				endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint(test.base, n)}})
				if err := store.EndpointSlices().Replace([]any{endpoints}, ""); err != nil {
					t.Error(err)
				}
				if !p.sync(t.Context()) {
					t.Error(p.Problem())
				}
				for _, name := range []string{"tcp-endpoints", "udp-external-endpoints", "sctp-node-port-endpoints"} {
					if elements, err := p.tables[at].nft.ListElements(t.Context(), "map", name); err != nil || len(elements) != n {
						t.Errorf("%s has %d elements of %d: %v", name, len(elements), n, err)
					}
				}
			}
		})
	}
}

// Each endpoint of a cluster IP gets connections, and sees the client's address unless that is its own.
func TestEndpointsOfAClusterIPInTheKernel(t *testing.T) {
	for _, test := range []struct {
		family           corev1.IPFamily
		of               discoveryv1.AddressType
		ip, client, base string
	}{
		{corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, "10.96.0.1", "10.244.0.99", "10.244.0."},
		{corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, "fd00:96::1", "fd00:244::99", "fd00:244::"},
	} {
		netnstest.Run(t, "nft", func(t *testing.T) {
			store := services.New()
			p := newKernelProxy(t, store)
			if p == nil {
				return
			}
			names := service("names", test.ip)
			names.Spec.IPFamilies, names.Spec.Ports[0] = []corev1.IPFamily{test.family}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}
			if err := errors.Join(routeToLoopback(test.ip), store.Services().Replace([]any{names}, "")); err != nil {
				t.Error(err)
			}
			echoClient(t, test.client)
			for n := 1; n <= 33; n++ {
				echoClient(t, fmt.Sprint(test.base, n))
			}
			// Each change is an update of that before it.
			for _, n := range []int{1, 3, 9, 33, 2} {
				endpoints := slice("names-1", "names", "")
				endpoints.AddressType, endpoints.Ports[0].Protocol, endpoints.Ports[0].Port, endpoints.Endpoints = test.of, ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353), nil
				for i := 1; i <= n; i++ {
					endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint(test.base, i)}})
				}
				if err := store.EndpointSlices().Replace([]any{endpoints}, ""); err != nil {
					t.Error(err)
				}
				if !p.sync(t.Context()) {
					t.Error(p.Problem())
				}
				own := fmt.Sprint(test.base, n)
				if server, seen := askFrom(t, own, own, 5353); server != own || !seen {
					t.Errorf("the server %q, which connects to itself without the service, saw itself: %t", server, seen)
				}
				found, hairpin := map[string]bool{}, false
				// That an endpoint is missed by chance has a probability of 33 * (32/33)^1000.
				for range 1000 {
					server, seen := askFrom(t, test.client, test.ip, 53)
					found[server] = true
					if !seen {
						t.Errorf("of %d endpoints, %q did not see the client's address", n, server)
						return
					}
					if server, seen = askFrom(t, own, test.ip, 53); seen == (server == own) {
						t.Errorf("of %d endpoints, %q saw the address of the client %s: %t", n, server, own, seen)
						return
					}
					hairpin = hairpin || server == own
					if len(found) == n && hairpin {
						break
					}
				}
				if len(found) != n || !hairpin {
					t.Errorf("of %d endpoints, %v were found; an endpoint reached itself: %t", n, found, hairpin)
				}
			}
		})
	}
}

// kindOf returns what has a name in the table: sets have keys of services, and maps endpoints or verdicts.
func kindOf(name string) string {
	if strings.HasSuffix(name, "endpoints") {
		return "map"
	}
	return "set"
}
