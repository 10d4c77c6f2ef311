//go:build linux

package proxy

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/services"
)

// neighbor is a namespace beside that of the node, which routes all that it sends through it. It sends
// and receives segments of TCP as they are.
type neighbor struct {
	fd      int
	address string
	raw     net.PacketConn
}

// newNeighbor connects a namespace to an interface of the node, whose namespace is that of the caller.
func newNeighbor(t *testing.T, link, gateway, address string) (*neighbor, error) {
	n := &neighbor{address: address}
	var err error
	if n.fd, err = netnstest.New(t); err != nil {
		return nil, err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = link
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.fd)}); err != nil {
		return nil, err
	}
	err = errors.Join(up(link, gateway), netnstest.In(n.fd, func() (err error) {
		err = errors.Join(up("eth0", address), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}))
		if err == nil {
			n.raw, err = net.ListenPacket("ip4:tcp", address)
		}
		return err
	}))
	if err == nil {
		t.Cleanup(func() { n.raw.Close() })
	}
	return n, err
}

// up gives an interface an address, and starts it.
func up(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	prefix := &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(24, 32)}
	return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: prefix}), netlink.LinkSetUp(link))
}

// The flags of segments.
const ack, synAck = 0x10, 0x12

// send sends a segment of a number that is in no connection's window.
func (n *neighbor) send(flags byte, from uint16, to netip.AddrPort) error {
	source := netip.MustParseAddr(n.address).As4()
	target := to.Addr().As4()
	segment := binary.BigEndian.AppendUint16(nil, from)
	segment = binary.BigEndian.AppendUint16(segment, to.Port())
	segment = binary.BigEndian.AppendUint32(segment, 1<<31)
	segment = binary.BigEndian.AppendUint32(segment, 1<<30)
	segment = append(segment, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	sum := uint32(unix.IPPROTO_TCP + len(segment)) // with the pseudo-header (RFC 9293, section 3.1)
	for _, part := range [][]byte{source[:], target[:], segment} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum+sum>>16))
	_, err := n.raw.WriteTo(segment, &net.IPAddr{IP: target[:]})
	return err
}

// until returns the addresses and ports from which segments come, up to one that ends with data.
func (n *neighbor) until(data string) ([]string, error) {
	if err := n.raw.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	var all []string
	for buffer := make([]byte, 1500); ; {
		size, from, err := n.raw.ReadFrom(buffer)
		if err != nil {
			return all, err
		}
		all = append(all, net.JoinHostPort(from.String(), strconv.Itoa(int(binary.BigEndian.Uint16(buffer)))))
		if strings.HasSuffix(string(buffer[:size]), data) {
			return all, nil
		}
	}
}

// connect returns both ends of a connection of a pod to a service, whose endpoint is at the other
// neighbor.
func connect(t *testing.T, pod, far *neighbor, service, endpoint string) (client, server net.Conn, err error) {
	var listener net.Listener
	if err := netnstest.In(far.fd, func() (err error) { listener, err = net.Listen("tcp4", endpoint); return err }); err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { listener.Close() })
	if err := netnstest.In(pod.fd, func() (err error) { client, err = net.DialTimeout("tcp4", service, 10*time.Second); return err }); err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err == nil {
		t.Cleanup(func() { server.Close() })
	}
	return client, server, err
}

// A segment that connection tracking calls invalid keeps its addresses: a client would get it from
// the endpoint, and reset the connection.
func TestInvalidSegmentsReachNoPodAndLeaveNoneInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		p := newKernelProxy(t, services.New())
		pod, err := newNeighbor(t, "svc0", "10.88.0.1", "10.88.0.2")
		far, err2 := newNeighbor(t, "far", "192.0.3.1", "192.0.3.2")
		if err := errors.Join(err, err2, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)); err != nil || p == nil {
			t.Error(err)
			return
		}
		err = p.options.Services.Services().Replace([]any{service("web", "10.96.0.1")}, "")
		err2 = p.options.Services.EndpointSlices().Replace([]any{slice("web", "web", "192.0.3.2")}, "")
		if err := errors.Join(err, err2); err != nil || !p.sync(t.Context()) {
			t.Error(err, p.Problem())
			return
		}
		client, server, err := connect(t, pod, far, "10.96.0.1:80", "192.0.3.2:8080")
		if err != nil {
			t.Error(err)
			return
		}
		_, err = server.Write([]byte("before"))
		err2 = far.send(ack, 8080, netip.MustParseAddrPort(server.RemoteAddr().String()))
		_, err3 := server.Write([]byte("after"))
		from, err4 := pod.until("after")
		if err := errors.Join(err, err2, err3, err4); err != nil || slices.Contains(from, "192.0.3.2:8080") || !slices.Contains(from, "10.96.0.1:80") {
			t.Errorf("the pod got segments from %v: %v", from, err)
		}
		// One that would be the second of a connection.
		err = pod.send(synAck, 7000, netip.MustParseAddrPort("192.0.3.2:7000"))
		_, err2 = client.Write([]byte("last"))
		from, err3 = far.until("last")
		if err := errors.Join(err, err2, err3); err != nil || slices.Contains(from, "10.88.0.2:7000") || len(from) == 0 {
			t.Errorf("the endpoint got segments from %v: %v", from, err)
		}
	})
}
