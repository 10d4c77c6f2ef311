//go:build linux

package proxy

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// newKernelProxy returns a proxy of the thread's namespace that serves what a store has; nil
// after an error.
func newKernelProxy(t testing.TB, store *services.Store) *Proxy {
	p, err := New(Options{
		Services: store, Node: "here", Zone: func() string { return "" }, Bridge: "svc0", PodRanges: func() []string { return nil },
		Clock: clock.RealClock{}, Sysctl: func(string, string) error { return errors.ErrUnsupported },
	})
	if err != nil {
		t.Error(err)
	}
	return p
}

// serveUDP answers datagrams at an address of the loopback interface with a name.
func serveUDP(t *testing.T, address, name string) {
	err := addToLoopback(address)
	var c net.PacketConn
	if err == nil {
		c, err = net.ListenPacket("udp", net.JoinHostPort(address, "5353"))
	}
	if err != nil {
		t.Error(err)
		return
	}
	answerUDP(t, c, name)
}

// answerUDP answers datagrams with a name.
func answerUDP(t *testing.T, c net.PacketConn, name string) {
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
			_, _ = c.WriteTo([]byte(name), client) // the client reports what it misses
		}
	}()
}

// addToLoopback gives the loopback interface an address.
func addToLoopback(ip string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(ip)), Flags: unix.IFA_F_NODAD})
}

// routeToLoopback gives an address a route, as with the default route of a machine.
func routeToLoopback(ip string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: netlink.NewIPNet(net.ParseIP(ip))})
}

// ask returns the answer to a packet.
func ask(c net.Conn) string {
	buffer := make([]byte, 128)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // of an open socket
	if _, err := c.Write([]byte("?")); err != nil {
		return err.Error()
	}
	n, err := c.Read(buffer)
	if err != nil {
		return err.Error()
	}
	return string(buffer[:n])
}

// udpFlow is an address of a service, and the endpoints that it has one after the other.
type udpFlow struct {
	family          corev1.IPFamily
	of              discoveryv1.AddressType
	ip, first, next string
}

// A client of UDP that keeps its port has a flow in the kernel, which would lead its packets
// to an endpoint that is gone, or to none.
func TestAFlowOfUDPInTheKernelFollowsTheEndpoints(t *testing.T) {
	for _, flow := range []udpFlow{
		{corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, "10.96.0.1", "10.244.0.5", "10.244.0.6"},
		{corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, "fd00:96::1", "fd00:244::5", "fd00:244::6"},
	} {
		t.Run(string(flow.family), func(t *testing.T) {
			netnstest.Run(t, "nft", func(t *testing.T) {
				if p := newKernelProxy(t, services.New()); p != nil {
					flow.follow(t, p)
				}
			})
		})
	}
}

// slice returns the service's endpoints: one at the address.
func (f udpFlow) slice(address string) *discoveryv1.EndpointSlice {
	s := slice("names-1", "names", address)
	s.AddressType, s.Ports[0].Protocol, s.Ports[0].Port = f.of, ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353)
	return s
}

func (f udpFlow) follow(t *testing.T, p *Proxy) {
	serveUDP(t, f.first, "first")
	serveUDP(t, f.next, "next")
	err := routeToLoopback(f.ip)
	names := service("names", f.ip)
	names.Spec.IPFamilies, names.Spec.Ports[0] = []corev1.IPFamily{f.family}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}
	var c net.Conn
	if err == nil {
		c, err = net.Dial("udp", net.JoinHostPort(f.ip, "53"))
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	endpoints := p.options.Services.EndpointSlices()
	if err := p.options.Services.Services().Replace([]any{names}, ""); err != nil {
		t.Error(err)
	}
	// after changes the endpoints, and expects an answer.
	after := func(change error, what string, client net.Conn, want string) {
		t.Helper()
		if change != nil {
			t.Error(change)
		}
		if !p.sync(t.Context()) {
			t.Error(p.Problem())
		}
		if got := ask(client); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	after(endpoints.Replace([]any{f.slice(f.first)}, ""), "before the change", c, "first")
	after(endpoints.Update(f.slice(f.next)), "the same client, after the endpoint is another one", c, "next")

	// The next agent does not know which endpoint the flow goes to.
	names.Spec.Ports[0].NodePort = 30053
	node, err := net.Dial("udp", net.JoinHostPort(f.first, "30053"))
	if err != nil {
		t.Error(err)
		return
	}
	defer node.Close()
	if got := ask(node); !strings.HasSuffix(got, "connection refused") {
		t.Errorf("a port of the node before its service: %q", got)
	}
	changed := endpoints.Update(f.slice(f.first))
	if p = newKernelProxy(t, p.options.Services); p == nil {
		return
	}
	after(changed, "the same client of the cluster IP, after the endpoint has changed while the agent was down", c, "first")
	after(nil, "the same client of the node port", node, "first")

	// A flow goes on while its endpoint terminates and serves.
	terminates := f.slice(f.first)
	terminates.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(bool), Serving: ptr.To(true), Terminating: ptr.To(true)}
	terminates.Endpoints = append(terminates.Endpoints, discoveryv1.Endpoint{Addresses: []string{f.next}})
	after(endpoints.Update(terminates), "the same client, while its endpoint terminates", c, "first")
	after(endpoints.Update(f.slice(f.next)), "the same client, after its endpoint has ended", c, "next")
	f.lose(t, p)
}

// lose removes tables and rules, as other programs do, and expects that the check finds it.
func (f udpFlow) lose(t *testing.T, p *Proxy) {
	if p.check(t.Context()); !p.tables[0].written || !p.tables[1].written {
		t.Error("a table that is there is missing")
	}
	family, i := "ip", 0
	if f.family == corev1.IPv6Protocol {
		family, i = "ip6", 1
	}
	for _, command := range []string{"flush table " + family + " svc0", "flush chain " + family + " svc0 nat-output", "delete table " + family + " svc0"} {
		if out, err := exec.CommandContext(t.Context(), "nft", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Errorf("nft %s: %v: %s", command, err, out)
		}
		if p.check(t.Context()); p.tables[i].written || !p.tables[1-i].written {
			t.Errorf("after nft %s, the tables are there: %t, %t", command, p.tables[0].written, p.tables[1].written)
		}
		if !p.sync(t.Context()) {
			t.Error(p.Problem())
		}
		if p.check(t.Context()); !p.tables[i].written {
			t.Errorf("after nft %s, the table is not written again", command)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Errorf("nft flush ruleset: %v: %s", err, out)
	}
	if p.check(t.Context()); p.tables[0].written || p.tables[1].written {
		t.Error("a table that is missing is there")
	}
}

// As the subsystem of connection tracking, of a kernel without nf_conntrack_netlink.
func TestAnUnknownSubsystemOfNetlinkIsUnsupported(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		const unknown = netlink.ConntrackTableType(200)
		_, err := netlink.ConntrackDeleteFilters(unknown, unix.AF_INET, flowFilter{})
		if err := withoutNetlink(err); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "nf_conntrack_netlink") {
			t.Error(err)
		}
		if err := endFlows(corev1.IPv4Protocol, &ruleset.Stale{}); err != nil {
			t.Error(err)
		}
	})
}

// The kernel refuses a second verdict for the key of a map, and with it all changes of the
// transaction.
func TestServicesWithTheSameAddressInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		p := newKernelProxy(t, services.New())
		if p == nil {
			return
		}
		objects, endpoints := p.options.Services.Services(), p.options.Services.EndpointSlices()
		at := func(name, ip string, created int64, change func(*corev1.Service)) *corev1.Service {
			s := service(name, ip)
			s.CreationTimestamp = metav1.Unix(created, 0)
			change(s)
			return s
		}
		external := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.9"} }
		balancer := func(source string) func(s *corev1.Service) {
			return func(s *corev1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{source}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
			}
		}
		notations := func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.ExternalIPs = []corev1.IPFamily{corev1.IPv6Protocol}, []string{"fd00:99::9", "FD00:99:0::9"}
		}
		young, old := at("young", "10.96.0.1", 20, external), at("old", "10.96.0.2", 10, external)
		oldest, other := at("oldest", "10.96.0.3", 5, balancer("198.51.100.0/24")), at("other", "10.96.0.4", 30, balancer("192.0.2.0/24"))
		step := func(what, name, want string, errs ...error) {
			t.Helper()
			for _, err := range errs {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if !p.sync(t.Context()) {
				t.Errorf("%s: %v", what, p.Problem())
				return
			}
			elements, err := p.tables[0].nft.ListElements(t.Context(), kindOf(name), name)
			if err != nil || len(elements) != 1 || !strings.Contains(strings.Join(append(elements[0].Key, elements[0].Value...), " "), want) {
				t.Errorf("%s: %s are %v, want those of %s: %v", what, name, elements, want, err)
			}
		}
		empty := func(name string) {
			t.Helper()
			if elements, err := p.tables[0].nft.ListElements(t.Context(), kindOf(name), name); err != nil || len(elements) > 0 {
				t.Errorf("%s are %v: %v", name, elements, err)
			}
		}
		step("two in the first list", "tcp-external-endpoints", "10.244.0.6",
			objects.Replace([]any{young, old}, ""), endpoints.Replace([]any{slice("young-1", "young", "10.244.0.5"), slice("old-1", "old", "10.244.0.6")}, ""))
		step("the owner goes", "tcp-external-endpoints", "10.244.0.5", objects.Delete(old))
		step("an older one comes", "tcp-external-endpoints", "10.244.0.6", objects.Add(old))
		step("a load balancer without endpoints", "closed-external-ips", "203.0.113.9", objects.Add(oldest), objects.Add(other))
		empty("external-ips")
		step("its address is guarded", "guarded-ips", "203.0.113.9")
		step("its source ranges", "source-ranges-of-24", "198.51.100.0 ")
		step("it gets endpoints", "tcp-external-endpoints", "10.244.0.7", endpoints.Add(slice("oldest-1", "oldest", "10.244.0.7")))
		step("it goes", "tcp-external-endpoints", "10.244.0.6", objects.Delete(oldest))
		empty("guarded-ips")
		step("an address in two notations", "tcp-external-endpoints", "10.244.0.6", objects.Add(at("notations", "fd00:96::1", 30, notations)))

		// In each sync the addresses of a service go to another one.
		port := func(s *corev1.Service) { s.Spec.Ports[0].NodePort, s.Spec.ExternalIPs = 30080, []string{"203.0.113.8"} }
		names, servers := [2]string{"left", "right"}, [2]string{"10.244.0.5", "10.244.0.8"}
		if err := errors.Join(objects.Replace([]any{at("right", "10.96.0.5", 1, port)}, ""), endpoints.Replace([]any{slice("left-1", "left", "10.244.0.5"), slice("right-1", "right", "10.244.0.8")}, "")); err != nil {
			t.Error(err)
		}
		step("before", "tcp-node-port-endpoints", "10.244.0.8")
		for i := range 20 {
			next, last := names[i%2], names[(i+1)%2]
			step("from "+last+" to "+next, "tcp-node-port-endpoints", servers[i%2], objects.Add(at(next, "10.96.0.5", int64(i), port)), objects.Delete(service(last, "10.96.0.5")))
		}
	})
}

func TestTheWholeTableIsWrittenWithTheClientsOfEndpoints(t *testing.T) {
	for _, test := range []struct {
		family    corev1.IPFamily
		of        discoveryv1.AddressType
		ip        string
		endpoints [2]string
	}{
		{corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, "10.96.0.1", [2]string{"10.244.0.5", "10.244.0.6"}},
		{corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, "fd00:96::1", [2]string{"fd00:244::5", "fd00:244::6"}},
	} {
		netnstest.Run(t, "nft", func(t *testing.T) {
			sticky := service("names", test.ip)
			sticky.Spec.IPFamilies, sticky.Spec.Ports[0] = []corev1.IPFamily{test.family}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}
			sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			endpoints := slice("names-1", "names", "")
			endpoints.AddressType, endpoints.Ports[0].Protocol, endpoints.Ports[0].Port, endpoints.Endpoints = test.of, ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353), nil
			for _, address := range test.endpoints {
				serveUDP(t, address, address)
				endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
			}
			store := services.New()
			if err := errors.Join(routeToLoopback(test.ip), store.Services().Replace([]any{sticky}, ""), store.EndpointSlices().Replace([]any{endpoints}, "")); err != nil {
				t.Error(err)
			}
			var first string
			var expires time.Duration
			for i := range 5 {
				// As after a restart of the agent.
				p := newKernelProxy(t, store)
				if p == nil {
					return
				}
				if !p.sync(t.Context()) {
					t.Error(p.Problem())
				}
				table := p.tables[0].nft
				if test.family == corev1.IPv6Protocol {
					table = p.tables[1].nft
				}
				before, err := nft.Members(t.Context(), table, ruleset.IsClients)
				if err != nil || len(slices.Concat(slices.Collect(maps.Values(before))...)) != min(i, 1) {
					t.Errorf("after the start %d, clients are %v: %v", i, before, err)
				}
				for _, members := range before {
					if left := members[0].Expires; left <= 0 || left > expires {
						t.Errorf("the client expires in %s, and before it was %s", left, expires)
					}
				}
				c, err := net.Dial("udp", net.JoinHostPort(test.ip, "53"))
				if err != nil {
					t.Error(err)
					return
				}
				got := ask(c)
				c.Close()
				if first == "" {
					first = got
				}
				if got != first || !slices.Contains(test.endpoints[:], got) {
					t.Errorf("after the start %d the client gets %s, and first %s", i, got, first)
				}
				after, err := nft.Members(t.Context(), table, ruleset.IsClients)
				if err != nil || len(after) != 1 {
					t.Errorf("clients are %v: %v", after, err)
				}
				for _, members := range after {
					expires = members[0].Expires
				}
			}
		})
	}
}

// Another machine with a route does not reach the servers that every node has for itself.
func TestServersOfTheNodeAreGuardedInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		store := services.New()
		p := newKernelProxy(t, store)
		if p == nil {
			return
		}
		if err := errors.Join(store.Services().Replace(nil, ""), store.EndpointSlices().Replace(nil, "")); err != nil {
			t.Error(err)
		}
		for i, addresses := range [][]netip.AddrPort{nil, {netip.MustParseAddrPort("127.0.0.1:5300"), netip.MustParseAddrPort("[fd9e:2c41:70b6::53]:5300")}, nil} {
			p.options.Local = func() map[services.Key]ruleset.Fallback {
				return map[services.Key]ruleset.Fallback{{Namespace: "kube-system", Name: "kube-dns"}: {Addresses: addresses, Port: 53}}
			}
			if !p.sync(t.Context()) {
				t.Error("not written", p.Problem())
			}
			if missing, err := p.verify(t.Context()); missing || err != nil {
				t.Errorf("with the servers %v, rules are missing: %t, error %v", addresses, missing, err)
			}
			out, err := exec.CommandContext(t.Context(), "nft", "list", "table", "ip6", "svc0").CombinedOutput()
			guarded := strings.Contains(string(out), `iifname != { "lo", "svc0" } ip6 daddr fd9e:2c41:70b6::53 ct state new drop`)
			if hook := strings.Contains(string(out), "chain loopback {"); err != nil || guarded != (len(addresses) > 0) || hook != (i > 0) {
				t.Errorf("with the servers %v, error %v, table\n%s", addresses, err, out)
			}
		}
	})
}
