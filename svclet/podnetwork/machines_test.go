//go:build linux

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// namespace is a network namespace.
type namespace struct {
	t  *testing.T
	fd int
}

// newNamespace returns a namespace that ends with the test.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	fd, err := netnstest.New(t)
	if err != nil {
		t.Fatal(err)
	}
	n := &namespace{t, fd}
	n.must(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600) })
	return n
}

// in runs a function in the namespace.
func (n *namespace) in(do func() error) error {
	return netnstest.In(n.fd, do)
}

func (n *namespace) must(do func() error) {
	n.t.Helper()
	if err := n.in(do); err != nil {
		n.t.Fatal(err)
	}
}

// connect adds a pair of interfaces, of which the other one is in another namespace.
func (n *namespace) connect(name string, other *namespace, otherName string, mtu int) {
	n.t.Helper()
	n.must(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.MTU = name, mtu
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: otherName, PeerNamespace: netlink.NsFd(other.fd), PeerMTU: uint32(mtu)})
	})
}

// up gives an interface addresses, and starts it.
func (n *namespace) up(name string, addresses ...string) {
	n.t.Helper()
	n.must(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// gateway adds the default route.
func (n *namespace) gateway(via string) {
	n.t.Helper()
	n.must(func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}) })
}

// machine is a node with one pod.
type machine struct {
	*namespace
	*Network
	pod              *namespace
	node, podAddress string
	mtu              int
	masquerade       []bool
}

const bridge = "svc0"

// newMachine returns the node number i, whose pods are in 10.88.i.0/24, with a pod.
func newMachine(t *testing.T, mode string, i int, node string) *machine {
	t.Helper()
	m := &machine{namespace: newNamespace(t), pod: newNamespace(t), node: node, podAddress: fmt.Sprintf("10.88.%d.2", i)}
	var err error
	m.must(func() error {
		m.Network, err = New(Options{
			Mode: mode, Node: fmt.Sprint("node", i), Bridge: bridge, Runtime: m, Clock: clock.RealClock{},
			Warn: func(reason, message string) { t.Error(reason, message) },
		})
		if err != nil {
			return err
		}
		m.options.Machine, err = openKernel(bridge)
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = bridge
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	})
	m.up(bridge, fmt.Sprintf("10.88.%d.1/24", i))
	return m
}

// addPod connects the pod to the bridge, as CNI would.
func (m *machine) addPod(i int) {
	m.t.Helper()
	m.namespace.connect("pod", m.pod, "eth0", m.mtu)
	m.must(func() error {
		pod, err := netlink.LinkByName("pod")
		if err != nil {
			return err
		}
		svc0, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(pod, svc0)
	})
	m.up("pod")
	m.pod.up("eth0", m.podAddress+"/24")
	m.pod.gateway(fmt.Sprintf("10.88.%d.1", i))
}

// PodRanges implements Runtime.
func (m *machine) PodRanges() ([]string, error) {
	address := netip.MustParseAddr(m.podAddress)
	return []string{netip.PrefixFrom(address, 24).Masked().String()}, nil
}

// SetMTU implements Runtime.
func (m *machine) SetMTU(mtu int) error { m.mtu = mtu; return nil }

// Masquerade implements Runtime.
func (m *machine) Masquerade(_ context.Context, on bool) error {
	m.masquerade = append(m.masquerade, on)
	return nil
}

func (m *machine) object() *corev1.Node {
	ranges, _ := m.PodRanges()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.options.Node}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.node}}
	return n
}

// write makes the machine have what it needs.
func (m *machine) write() {
	m.t.Helper()
	m.must(func() error {
		if !m.sync(m.t.Context()) {
			return errors.New(m.failure)
		}
		return nil
	})
}

// shows returns what a program prints on the machine.
func (m *machine) shows(program ...string) string {
	m.t.Helper()
	var out []byte
	m.must(func() (err error) {
		out, err = exec.Command(program[0], program[1:]...).CombinedOutput()
		return err
	})
	return string(out)
}

// seen returns the address that a server at one place sees of a client at another, which
// sends it many bytes.
func seen(t *testing.T, client, server *namespace, address string) string {
	t.Helper()
	var listener net.Listener
	server.must(func() (err error) { listener, err = net.Listen("tcp", address+":80"); return err })
	defer listener.Close()
	type result struct {
		from string
		read int64
		err  error
	}
	accepted := make(chan result, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			accepted <- result{err: err}
			return
		}
		defer c.Close()
		read, err := io.Copy(io.Discard, c)
		from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		accepted <- result{from, read, err}
	}()
	var c net.Conn
	client.must(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp4", address+":80")
		return err
	})
	const size = 1 << 20
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	r := <-accepted
	if r.err != nil || r.read != size {
		t.Fatalf("the server has read %d bytes: %v", r.read, r.err)
	}
	return r.from
}

// newPair returns two machines whose networks are connected by a router or, without one,
// that are on one network.
func newPair(t *testing.T, mode string) (a, b *machine) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	a, b = newMachine(t, mode, 1, "192.0.2.1"), newMachine(t, mode, 2, "192.0.2.2")
	if mode == plan.HostRoutes {
		a.namespace.connect("eth0", b.namespace, "eth0", 1500)
		a.up("eth0", "192.0.2.1/24")
		b.up("eth0", "192.0.2.2/24")
	} else {
		b.node = "203.0.113.1"
		router := newNamespace(t)
		a.namespace.connect("eth0", router, "a", 1500)
		b.namespace.connect("eth0", router, "b", 1500)
		router.up("a", "192.0.2.254/24")
		router.up("b", "203.0.113.254/24")
		a.up("eth0", "192.0.2.1/24")
		a.namespace.gateway("192.0.2.254")
		b.up("eth0", "203.0.113.1/24")
		b.namespace.gateway("203.0.113.254")
	}
	for i, m := range []*machine{a, b} {
		m.must(func() error { m.Prepare(t.Context()); return nil })
		if err := m.nodes.Replace([]any{a.object(), b.object()}, ""); err != nil {
			t.Fatal(err)
		}
		m.write()
		m.addPod(i + 1)
	}
	return a, b
}

func TestPodsOfTwoMachinesSeeEachOthersAddresses(t *testing.T) {
	for mode, mtu := range map[string]int{plan.HostRoutes: 1500, plan.VXLAN: 1450} {
		t.Run(mode, func(t *testing.T) {
			a, b := newPair(t, mode)
			if a.mtu != mtu || b.mtu != mtu {
				t.Errorf("pods have MTUs of %d and %d", a.mtu, b.mtu)
			}
			if got := seen(t, a.pod, b.pod, b.podAddress); got != a.podAddress {
				t.Errorf("a pod sees %s in place of %s", got, a.podAddress)
			}
			if got := seen(t, b.pod, a.pod, a.podAddress); got != b.podAddress {
				t.Errorf("a pod sees %s in place of %s", got, b.podAddress)
			}
			if got := seen(t, a.pod, b.namespace, b.node); got != a.node {
				t.Errorf("a node sees %s: only its address is known outside of the cluster", got)
			}
			fromNode := a.node
			if mode == plan.VXLAN {
				fromNode = "10.88.1.0" // its end of the tunnels
			}
			if got := seen(t, a.namespace, b.pod, b.podAddress); got != fromNode {
				t.Errorf("a pod sees %s of the other node", got)
			}
			if !slices.Contains(a.masquerade, false) || slices.Contains(a.masquerade, true) {
				t.Errorf("iptables masquerade: %v", a.masquerade)
			}
		})
	}
}

func TestWhatOtherProgramsRemoveIsWrittenAgain(t *testing.T) {
	for mode, remove := range map[string][][]string{
		plan.HostRoutes: {{"ip", "route", "del", "10.88.2.0/24"}, {"nft", "delete", "table", "ip", "svc0-pods"}, {"nft", "flush", "table", "ip", "svc0-pods"}},
		plan.VXLAN:      {{"ip", "route", "del", "10.88.2.0/24"}, {"ip", "link", "del", "svc0-vx"}},
	} {
		t.Run(mode, func(t *testing.T) {
			a, b := newPair(t, mode)
			for _, command := range remove {
				ctx, cancel := context.WithCancel(t.Context())
				for len(a.nodes.changed) > 0 {
					<-a.nodes.changed
				}
				watching := make(chan error, 1)
				subscribed := make(chan struct{})
				go func() {
					var watch func() error
					a.must(func() (err error) {
						watch, err = a.options.Machine.(*kernel).subscribe(ctx, a.nodes.signal)
						return err
					})
					close(subscribed)
					watching <- watch()
				}()
				<-subscribed
				a.expectMissing(false)
				a.shows(command...)
				if command[0] == "ip" {
					<-a.nodes.changed
				} else {
					a.expectMissing(true)
				}
				cancel()
				if err := <-watching; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				a.write()
				if got := seen(t, a.pod, b.pod, b.podAddress); got != a.podAddress {
					t.Errorf("after %v a pod sees %s", command, got)
				}
				if got := seen(t, a.pod, b.namespace, b.node); got != a.node {
					t.Errorf("after %v a node sees %s", command, got)
				}
			}
		})
	}
}

func TestTheTunnelFollowsTheMTUOfTheMachinesNetwork(t *testing.T) {
	a, _ := newPair(t, plan.VXLAN)
	number, _, _ := strings.Cut(a.shows("ip", "link", "show", "svc0-vx"), ":")
	for _, mtu := range []int{1500, 1300, 1500} {
		a.shows("ip", "link", "set", "eth0", "mtu", fmt.Sprint(mtu))
		a.write()
		link := a.shows("ip", "link", "show", "svc0-vx")
		if !strings.Contains(link, fmt.Sprintf(" mtu %d ", mtu-plan.Overhead4)) {
			t.Errorf("with a network of %d bytes: %s", mtu, link)
		}
		if again, _, _ := strings.Cut(link, ":"); again != number {
			t.Errorf("it is another interface, which interrupts connections: %s", link)
		}
	}
}

func TestPeersAndRoutesAreWrittenThoughTheTunnelHasNotItsMTU(t *testing.T) {
	n := newNamespace(t)
	n.connect("eth0", newNamespace(t), "eth0", 1500)
	n.up("eth0", "192.0.2.1/24")
	n.must(func() error {
		k, err := openKernel(bridge)
		if err != nil {
			return err
		}
		defer k.Close()
		path, _ := k.Path(netip.MustParseAddr("192.0.2.2"))
		internal := netip.MustParseAddr("10.88.2.0")
		err = k.Apply(plan.Plan{
			Tunnel: &plan.Tunnel{Link: path.Link, Address: netip.MustParseAddr("192.0.2.1"), MAC: plan.MAC{2, 0, 0, 0, 0, 1}, MTU: 1 << 20, Internal: []netip.Addr{netip.MustParseAddr("10.88.1.0")}},
			Peers:  []plan.Peer{{Node: netip.MustParseAddr("192.0.2.2"), MAC: plan.MAC{2, 0, 0, 0, 0, 2}, Internal: []netip.Addr{internal}}},
			Routes: []plan.Route{{To: netip.MustParsePrefix("10.88.2.0/24"), Via: internal}},
		})
		if err == nil || !strings.Contains(err.Error(), "set the MTU") {
			t.Errorf("got %v", err)
		}
		link, err := k.netlink.LinkByName(k.tunnel)
		if err != nil {
			return err
		}
		neighbours, err := k.netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
		if !slices.ContainsFunc(neighbours, func(n netlink.Neigh) bool { return n.IP.Equal(internal.AsSlice()) }) {
			t.Errorf("the peers are %v", neighbours)
		}
		routes, err2 := k.netlink.RouteList(link, netlink.FAMILY_V4)
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(internal.AsSlice()) }) {
			t.Errorf("the routes are %v", routes)
		}
		return errors.Join(err, err2)
	})
}

// expectMissing expects that the loop finds that rules are missing, or that none are.
func (m *machine) expectMissing(want bool) {
	m.t.Helper()
	m.must(func() error {
		loop := m.loop()
		generation, err := loop.Generation()
		missing, err2 := loop.Verify(m.t.Context())
		if generation == 0 || err != nil || err2 != nil || missing != want {
			return errors.Join(fmt.Errorf("rules are missing: %t, want %t; the generation is %d", missing, want, generation), err, err2)
		}
		return nil
	})
}

func TestNodesThatGoAndAResetLeaveNothing(t *testing.T) {
	for _, mode := range []string{plan.HostRoutes, plan.VXLAN} {
		t.Run(mode, func(t *testing.T) {
			a, b := newPair(t, mode)
			a.shows("ip", "route", "add", "10.88.9.0/24", "via", "10.88.1.2") // an administrator's
			before := a.shows("nft", "list", "table", "ip", "svc0-pods")
			if err := a.nodes.Delete(b.object()); err != nil {
				t.Fatal(err)
			}
			a.write()
			if routes := a.shows("ip", "route"); strings.Contains(routes, "10.88.2.0") || !strings.Contains(routes, "10.88.9.0") {
				t.Error(routes)
			}
			if after := a.shows("nft", "list", "table", "ip", "svc0-pods"); after == before || strings.Contains(after, "10.88.2.0") {
				t.Error(after)
			}
			if mode == plan.VXLAN {
				if fdb := a.shows("bridge", "fdb", "show", "dev", "svc0-vx") + a.shows("ip", "neigh", "show", "dev", "svc0-vx"); fdb != "" {
					t.Error(fdb)
				}
			}
			if err := a.nodes.Add(b.object()); err != nil {
				t.Fatal(err)
			}
			a.write()
			a.must(func() error { return Remove(bridge) })
			if left := a.shows("ip", "route") + a.shows("ip", "link") + a.shows("nft", "list", "ruleset"); strings.Contains(left, "10.88.2.0") || strings.Contains(left, "svc0-") || !strings.Contains(left, "10.88.9.0") {
				t.Error(left)
			}
		})
	}
}
