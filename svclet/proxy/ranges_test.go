//go:build linux

package proxy

import (
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/services"
)

// restricted is a load balancer with an address of each family, and the ranges of its sources
// to come.
type restricted struct {
	*testing.T
	*Proxy
	service *corev1.Service
	ips     [2]string
}

// newRestricted returns a load balancer of both families, whose endpoints are on the loopback
// interface; nil after an error.
func newRestricted(t *testing.T) *restricted {
	p := newKernelProxy(t, services.New())
	if p == nil {
		return nil
	}
	r := &restricted{t, p, service("names", "10.96.0.1"), [2]string{"203.0.113.1", "fd00:99::1"}}
	r.service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	r.service.Spec.Ports[0] = corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}
	var all []any
	for of, address := range map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.244.0.5", discoveryv1.AddressTypeIPv6: "fd00:244::5"} {
		serveUDP(t, address, "answer")
		s := slice("names-"+string(of), "names", address)
		s.AddressType, s.Ports[0].Protocol, s.Ports[0].Port = of, ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353)
		all = append(all, s)
	}
	for _, ip := range r.ips {
		r.service.Status.LoadBalancer.Ingress = append(r.service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	if err := p.options.Services.EndpointSlices().Replace(all, ""); err != nil {
		t.Error(err)
	}
	return r
}

// What the node gets of a load balancer with source ranges.
const answers, dropped = "answer", "operation not permitted"

// expect sets the source ranges, and expects what the node gets by IPv4 and by IPv6.
func (r *restricted) expect(ranges, v4, v6 string) {
	changed := r.service.DeepCopy()
	changed.Spec.LoadBalancerSourceRanges = strings.Fields(ranges)
	if err := r.options.Services.Services().Replace([]any{changed}, ""); err != nil {
		r.Error(err)
	}
	if !r.sync(r.Context()) {
		r.Errorf("%s: %v", ranges, r.Problem())
	}
	for i, want := range []string{v4, v6} {
		c, err := net.Dial("udp", net.JoinHostPort(r.ips[i], "53"))
		if err != nil {
			r.Error(err)
			return
		}
		if got := ask(c); !strings.HasSuffix(got, want) {
			r.Errorf("ranges %q, to %s: %q, want %q", ranges, r.ips[i], got, want)
		}
		c.Close()
	}
}

func TestSourceRangesRestrictTheirFamilyInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		r := newRestricted(t)
		if r == nil {
			return
		}
		for _, ip := range r.ips {
			if err := routeToLoopback(ip); err != nil {
				t.Error(err)
			}
		}
		for _, test := range []struct{ ranges, v4, v6 string }{
			{"", answers, answers},
			{"0.0.0.0/0", answers, answers},
			{"0.0.0.0/0 ::/0", answers, answers},
			{"198.51.100.0/24 0.0.0.0/0", answers, answers},
			{"198.51.100.0/24", dropped, answers},
			{"198.051.100.0/24", dropped, answers}, // as the API accepts it
			{"198.51.100.0/24 198.51.0.0/16 198.51.100.0/24 ::/0", dropped, answers},
			{"2001:db8::/32", answers, dropped},
			{"198.51.100.0/24 2001:db8::/32", dropped, dropped},
			{"10.0.0.0/8 127.0.0.0/8 203.0.113.0/24 fd00::/8 ::1/128", answers, answers},
		} {
			r.expect(test.ranges, test.v4, test.v6)
		}
	})
}

// As with kube-vip, which gives a node the address of a load balancer: what the node sends to it
// comes from it.
func TestANodeWithTheAddressOfALoadBalancerReachesItIfSourceRangesHaveTheNode(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		r := newRestricted(t)
		if r == nil {
			return
		}
		for _, ip := range r.ips {
			if err := addToLoopback(ip); err != nil {
				t.Error(err)
			}
		}
		addresses := []string{"192.0.2.1", "2001:db8:2::1"}
		r.options.Addresses = func() []string { return addresses }
		r.expect("192.0.2.0/24 2001:db8:2::/64", answers, answers)
		r.expect("192.0.2.0/24 2001:db8:3::/64", answers, dropped)
		r.expect("192.0.2.0/24 203.0.113.1/32 ::/0", answers, answers)
		r.expect("198.51.100.0/24", dropped, answers)
		addresses = []string{"198.51.100.9"}
		r.expect("198.51.100.0/24", answers, answers)
	})
}

// The node may use the port of a load balancer for a connection of its own.
func TestSourceRangesDoNotRestrictAnswersToTheNodeInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		r := newRestricted(t)
		far, err := newNeighbor(t, "far", "192.0.3.1", "192.0.3.2")
		if err != nil || r == nil {
			t.Error(err)
			return
		}
		var server net.PacketConn
		if err := netnstest.In(far.fd, func() (err error) { server, err = net.ListenPacket("udp4", "192.0.3.2:7000"); return err }); err != nil {
			t.Error(err)
			return
		}
		answerUDP(t, server, answers)
		r.service.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		r.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.3.1"}}
		if err := r.options.Services.Services().Replace([]any{r.service}, ""); err != nil || !r.sync(t.Context()) {
			t.Error(err, r.Problem())
			return
		}
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP("192.0.3.1"), Port: 53}, &net.UDPAddr{IP: net.ParseIP("192.0.3.2"), Port: 7000})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if got := ask(c); got != answers {
			t.Errorf("the node gets %q, want %q", got, answers)
		}
	})
}
