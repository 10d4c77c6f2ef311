package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"svc.dev/svc/test/sctp"
)

// threads is how many connections a namespace opens at the same time.
const threads = 16

// namespace is a network namespace with threads in it.
type namespace struct {
	t    *testing.T
	fd   int
	work chan func()
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, work: make(chan func())}
	var running sync.WaitGroup
	ready := make(chan error, threads)
	running.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for do := range n.work {
			do()
		}
	})
	t.Cleanup(func() { close(n.work); running.Wait(); unix.Close(n.fd) })
	must(t, <-ready)
	for range threads - 1 {
		running.Go(func() {
			runtime.LockOSThread()
			err := unix.Setns(n.fd, unix.CLONE_NEWNET)
			ready <- err
			if err != nil {
				return
			}
			for do := range n.work {
				do()
			}
		})
		must(t, <-ready)
	}
	n.up("lo")
	for name, value := range parameters {
		must(t, n.in(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o600) }))
	}
	return n
}

// parameters are those of the kernel in each namespace. Each refusal is sent: by default the
// kernel sends one a second to a client, and a thousand a second in all, after which a
// connection that is refused looks as if it was dropped. The ICMPv6 type 255 is reserved.
var parameters = map[string]string{
	"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
	"ipv4/icmp_ratemask": "0", "ipv6/icmp/ratemask": "255",
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in runs a function on a thread of the namespace.
func (n *namespace) in(do func() error) error {
	done := make(chan error, 1)
	n.work <- func() { done <- do() }
	return <-done
}

// up gives an interface addresses, and starts it.
func (n *namespace) up(name string, addresses ...string) {
	n.t.Helper()
	must(n.t, n.in(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			if err == nil {
				a.Flags = unix.IFA_F_NODAD // it is used at once
				err = netlink.AddrAdd(link, a)
			}
			if err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	}))
}

// connect connects an interface of another namespace, which gets addresses, to the node: to
// its bridge or, with addresses of the node, to an interface of its own. The gateways lead
// everywhere else.
func (n *namespace) connect(name string, other *namespace, gateways, own []string, addresses ...string) {
	n.t.Helper()
	must(n.t, n.in(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(other.fd)}); err != nil || len(own) > 0 {
			return err
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		svc0, err := netlink.LinkByName(bridge)
		// Where rules apply to what the bridge forwards, an endpoint reaches itself by it.
		return errors.Join(err, netlink.LinkSetMaster(link, svc0), netlink.LinkSetHairpin(link, true))
	}))
	n.up(name, own...)
	other.up("eth0", addresses...)
	for _, gateway := range gateways {
		other.route("", gateway)
	}
}

// route adds a route to a range, or the default route of the gateway's IP family.
func (n *namespace) route(destination, gateway string) {
	n.t.Helper()
	route := &netlink.Route{Gw: net.ParseIP(gateway)}
	if destination != "" {
		_, ipNet, err := net.ParseCIDR(destination)
		must(n.t, err)
		route.Dst = ipNet
	}
	must(n.t, n.in(func() error { return netlink.RouteAdd(route) }))
}

// serve answers connections, datagrams and associations of SCTP at an address with the
// address and that of the client.
func (n *namespace) serve(address string) {
	n.t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	var associations *sctp.Server
	must(n.t, n.in(func() (err error) {
		if tcp, err = net.Listen("tcp", address); err != nil {
			return err
		}
		if udp, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		associations, err = sctp.Listen(n.t.Context(), address)
		return err
	}))
	var serving sync.WaitGroup
	n.t.Cleanup(func() { tcp.Close(); udp.Close(); associations.Close(); serving.Wait() })
	answer := func(client string) []byte { return fmt.Appendf(nil, "%s from %s", address, client) }
	host := func(client net.Addr) string {
		host, _, _ := net.SplitHostPort(client.String())
		return host
	}
	serving.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(answer(host(c.RemoteAddr()))) // the client reports what it misses
			c.Close()
		}
	})
	serving.Go(func() {
		buffer := make([]byte, 16)
		for {
			_, client, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(answer(host(client)), client)
		}
	})
	serving.Go(func() {
		if err := associations.Serve(func(client net.Addr) []byte { return answer(client.String()) }); err != nil {
			n.t.Error(err)
		}
	})
}

// patience is how long a client waits for an answer. Packets that are dropped take it.
const patience = 700 * time.Millisecond

// ask opens a connection to an address, and returns the answer, or what became of it.
func (n *namespace) ask(ctx context.Context, protocol, address string) string {
	if protocol == "sctp" {
		return n.askSCTP(ctx, address)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var c net.Conn
	err := n.in(func() (err error) { c, err = (&net.Dialer{}).DialContext(ctx, protocol, address); return err })
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err.Error()
	}
	if protocol == "tcp" {
		content, err := io.ReadAll(c)
		if err != nil {
			return failure(err)
		}
		return string(content)
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return failure(err)
	}
	buffer := make([]byte, 100)
	size, err := c.Read(buffer)
	if err != nil {
		return failure(err)
	}
	return string(buffer[:size])
}

// askSCTP is not used at the same time for the same address: see [sctp.Conn.Init].
func (n *namespace) askSCTP(ctx context.Context, address string) string {
	var c *sctp.Conn
	if err := n.in(func() (err error) { c, err = sctp.Dial(ctx, address); return err }); err != nil {
		return failure(err)
	}
	defer c.Close()
	answer, err := c.Init(time.Now().Add(patience))
	if err != nil {
		return failure(err)
	}
	return string(answer)
}

func failure(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	// A router says that a host is unreachable some seconds after the first packet to it.
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, unix.EHOSTUNREACH):
		return "no answer"
	case errors.Is(err, unix.EPERM):
		return "not permitted" // dropped or refused before it left
	case errors.Is(err, unix.ENETUNREACH):
		return "unreachable"
	}
	return err.Error()
}
