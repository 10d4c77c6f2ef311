package networkpolicy

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/runtime"
)

// address gives an interface an address, and starts it.
func address(name string, prefixes ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetUp(link)}
	for _, text := range prefixes {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		errs = append(errs, netlink.AddrAdd(link, a))
	}
	return errors.Join(errs...)
}

// podNamespace returns a pod of a bridge in the namespace of the caller.
func podNamespace(t *testing.T, bridge netlink.Link, port string, prefixes ...string) (fd int, err error) {
	if fd, err = netnstest.New(t); err != nil {
		return fd, err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = port, bridge.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(fd)}); err != nil {
		return fd, err
	}
	return fd, errors.Join(address(port), netnstest.In(fd, func() error { return address("eth0", prefixes...) }))
}

// send sends a datagram from any address, which need not be the namespace's, and any port.
func send(fd int, from, to, text string) error {
	return netnstest.In(fd, func() error {
		source, target := netip.MustParseAddr(from), netip.MustParseAddr(to)
		family := unix.AF_INET
		if target.Is6() {
			family = unix.AF_INET6
		}
		s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if family == unix.AF_INET {
			return errors.Join(
				unix.SetsockoptInt(s, unix.SOL_IP, unix.IP_TRANSPARENT, 1), unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.Bind(s, &unix.SockaddrInet4{Addr: source.As4()}), unix.Sendto(s, []byte(text), 0, &unix.SockaddrInet4{Addr: target.As4(), Port: 7000}))
		}
		zone := uint32(link.Attrs().Index)
		return errors.Join(unix.SetsockoptInt(s, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1), unix.Bind(s, &unix.SockaddrInet6{Addr: source.As16(), ZoneId: zone}),
			unix.Sendto(s, []byte(text), 0, &unix.SockaddrInet6{Addr: target.As16(), ZoneId: zone, Port: 7000}))
	})
}

// sendTagged sends a datagram to port 7000 of an IPv4 address in a frame with the tag of VLAN 0.
func sendTagged(from, to int, source, target, text string) error {
	var receiver net.HardwareAddr
	if err := netnstest.In(to, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			receiver = link.Attrs().HardwareAddr
		}
		return err
	}); err != nil {
		return err
	}
	udp := binary.BigEndian.AppendUint16(nil, 7001)
	udp = binary.BigEndian.AppendUint16(udp, 7000)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	udp = append(udp, 0, 0) // IPv4 needs no checksum of it
	header := ipv4.Header{
		Version: 4, Len: ipv4.HeaderLen, TotalLen: ipv4.HeaderLen + len(udp) + len(text), TTL: 64, Protocol: unix.IPPROTO_UDP,
		Src: net.ParseIP(source), Dst: net.ParseIP(target),
	}
	ip, err := header.Marshal()
	if err != nil {
		return err
	}
	sum := 0
	for i := 0; i < len(ip); i += 2 {
		sum += int(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return netnstest.In(from, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		frame := slices.Concat(receiver, link.Attrs().HardwareAddr, []byte{0x81, 0, 0, 0, 8, 0}, ip, udp, []byte(text))
		return unix.Sendto(s, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index})
	})
}

// filteredPods makes the namespaces of a node and of three of its pods, web, to which all
// connections are denied, other and third. It skips the test where the kernel does not filter
// bridges, or without the rights to make them do so.
func filteredPods(t *testing.T) (node, web, other, third int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	node, err := netnstest.New(t)
	if err != nil {
		t.Fatal(err)
	}
	err = netnstest.In(node, func() error {
		if err := nft.SetParameter(nft.BridgeParameters()[0], "1"); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "svc0"
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
		bridge, err2 := netlink.LinkByName("svc0")
		if err := errors.Join(err, err2, address("svc0", "10.88.0.1/24")); err != nil {
			return err
		}
		web, err = podNamespace(t, bridge, "port1", "10.88.0.5/24", "fd00::5/64", "fe80::5/64")
		if err != nil {
			return err
		}
		if other, err = podNamespace(t, bridge, "port2", "10.88.0.6/24", "fd00::6/64", "fe80::6/64"); err != nil {
			return err
		}
		if third, err = podNamespace(t, bridge, "port3", "10.88.0.8/24", "fd00::8/64"); err != nil {
			return err
		}
		results := t.TempDir()
		for port, addresses := range map[string][2]string{"port1": {"10.88.0.5", "fd00::5"}, "port2": {"10.88.0.6", "fd00::6"}, "port3": {"10.88.0.8", "fd00::8"}} {
			if err := writeResult(results, port, addresses[:]...); err != nil {
				return err
			}
		}
		e, err := New(Options{Node: "here", Bridge: "svc0", Results: results, Clock: clock.RealClock{}, Warn: func(string, string) {}})
		if err != nil {
			return err
		}
		e.filterBridge(t.Context())
		unlabelled, last := has("other", "10.88.0.6", "fd00::6"), has("third", "10.88.0.8", "fd00::8")
		unlabelled.Labels, last.Labels = nil, nil
		e.Adopt([]runtime.Pod{has("web", "10.88.0.5", "fd00::5"), unlabelled, last})
		err = errors.Join(policiesOf(e.state).Replace(deny(), ""),
			namespacesOf(e.state).Replace([]any{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, ""),
			podsOf(e.state).Replace(nil, ""))
		if !e.sync(t.Context()) {
			return errors.Join(err, e.state.failure)
		}
		e.check(t.Context())
		for _, table := range e.tables {
			if !table.written {
				err = errors.Join(err, errors.New("a table is found to be missing that is there"))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if web == 0 {
		t.Skip("the kernel has no br_netfilter")
	}
	return node, web, other, third
}

// Addresses that are no pod's of the node pass no policy: those that a pod makes up, and those
// that it has besides its own.
func TestOtherAddressesDoNotBypassPoliciesInTheKernel(t *testing.T) {
	node, web, other, third := filteredPods(t)
	listen := func(fd int) (c net.PacketConn) {
		if err := netnstest.In(fd, func() (err error) { c, err = net.ListenPacket("udp", ":7000"); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	denied := listen(web)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	next := func(c net.PacketConn) string {
		t.Helper()
		must(c.SetReadDeadline(time.Now().Add(10 * time.Second)))
		buffer := make([]byte, 100)
		n, _, err := c.ReadFrom(buffer)
		must(err)
		return string(buffer[:n])
	}
	for _, to := range []struct{ from, address string }{{"10.88.0.6", "10.88.0.5"}, {"10.88.0.7", "10.88.0.5"}, {"fe80::6", "fe80::5"}, {"10.88.0.6", "10.88.0.255"}} {
		if err := send(other, to.from, to.address, "from "+to.from+" to "+to.address); err != nil {
			t.Fatal(to, err)
		}
	}
	must(sendTagged(other, web, "10.88.0.6", "10.88.0.5", "in a tagged frame"))
	// What the node sends is allowed, and comes after what the pod has sent.
	must(netnstest.In(node, func() error {
		c, err := net.Dial("udp", "10.88.0.5:7000")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("the node's"))
		return err
	}))
	if got := next(denied); got != "the node's" {
		t.Errorf("a pod without allowed connections got a datagram %s", got)
	}
	must(denied.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
	if _, from, err := denied.ReadFrom(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("another datagram from %v, error %v", from, err)
	}
	server := listen(other)
	must(send(web, "10.88.0.9", "10.88.0.6", "spoofed"))
	must(send(web, "10.88.0.5", "10.88.0.6", "own"))
	if got := next(server); got != "own" {
		t.Errorf("got a datagram that is %s", got)
	}
	server = listen(third)
	for _, of := range [][3]string{{"10.88.0.6", "10.88.0.5", "10.88.0.8"}, {"fd00::6", "fd00::5", "fd00::8"}} {
		must(send(web, of[0], of[2], "another pod's"))
		must(send(web, of[1], of[2], "own"))
		if got := next(server); got != "own" {
			t.Errorf("got a datagram that is %s", got)
		}
	}
}
