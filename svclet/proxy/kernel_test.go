//go:build linux

package proxy

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// inNamespace runs a test on a thread of its own, in a new network namespace with the
// loopback interface.
func inNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			var lo netlink.Link
			if lo, err = netlink.LinkByName("lo"); err == nil {
				err = netlink.LinkSetUp(lo)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
		test(t)
	}()
	<-done
}

// serveUDP answers datagrams at an address of the loopback interface with a name.
func serveUDP(t *testing.T, address, name string) {
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
			_, _ = c.WriteTo([]byte(name), client) // the client reports what it misses
		}
	}()
}

// ask returns the answer to a packet.
func ask(c net.Conn) string {
	buffer := make([]byte, 16)
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

// A client of UDP that keeps its port has a flow in the kernel, which would lead its packets
// to an endpoint that is gone, or to none.
func TestAFlowOfUDPInTheKernelFollowsTheEndpoints(t *testing.T) {
	for _, test := range []struct {
		family          corev1.IPFamily
		of              discoveryv1.AddressType
		ip, first, next string
	}{
		{corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, "10.96.0.1", "10.244.0.5", "10.244.0.6"},
		{corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, "fd00:96::1", "fd00:244::5", "fd00:244::6"},
	} {
		t.Run(string(test.family), func(t *testing.T) {
			inNamespace(t, func(t *testing.T) {
				p, err := New(Options{
					Services: services.New(), Node: "here", Zone: func() string { return "" }, Bridge: "svc0", PodRanges: func() []string { return nil },
					Clock: clock.RealClock{}, Sysctl: func(string, string) error { return errors.ErrUnsupported },
				})
				if err != nil {
					t.Error(err)
					return
				}
				serveUDP(t, test.first, "first")
				serveUDP(t, test.next, "next")
				// The address of the service has a route, as with the default route of a machine.
				lo, err := netlink.LinkByName("lo")
				if err == nil {
					err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: netlink.NewIPNet(net.ParseIP(test.ip))})
				}
				names := service("names", test.ip)
				names.Spec.IPFamilies, names.Spec.Ports[0] = []corev1.IPFamily{test.family}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}
				at := func(address string) *discoveryv1.EndpointSlice {
					s := slice("names-1", "names", address)
					s.AddressType, s.Ports[0].Protocol, s.Ports[0].Port = test.of, ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353)
					return s
				}
				var c net.Conn
				if err == nil {
					c, err = net.Dial("udp", net.JoinHostPort(test.ip, "53"))
				}
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				endpoints := p.options.Services.EndpointSlices()
				for _, err := range []error{p.options.Services.Services().Replace([]any{names}, ""), endpoints.Replace([]any{at(test.first)}, "")} {
					if err != nil {
						t.Error(err)
					}
				}
				if !p.sync(t.Context()) {
					t.Error(p.Problem())
				}
				if got := ask(c); got != "first" {
					t.Errorf("before the change: %q", got)
				}
				if err := endpoints.Update(at(test.next)); err != nil {
					t.Error(err)
				}
				if !p.sync(t.Context()) {
					t.Error(p.Problem())
				}
				if got := ask(c); got != "next" {
					t.Errorf("the same client, after the endpoint is another one: %q", got)
				}

				// The check finds a table that is there, and one that another program has removed.
				if p.check(t.Context()); !p.tables[0].written || !p.tables[1].written {
					t.Error("a table that is there is missing")
				}
				if out, err := exec.CommandContext(t.Context(), "nft", "flush", "ruleset").CombinedOutput(); err != nil {
					t.Errorf("nft flush ruleset: %v: %s", err, out)
				}
				if p.check(t.Context()); p.tables[0].written || p.tables[1].written {
					t.Error("a table that is missing is there")
				}
			})
		})
	}
}
