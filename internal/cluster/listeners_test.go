package cluster

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// greet serves every connection with one byte.
func greet(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("x")) // the client may have gone
		conn.Close()
	}
}

// greeted reports whether a server greets at an address.
func greeted(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	return err == nil && string(got) == "x"
}

func everybody(netip.Addr) bool { return true }

func TestListenersServeFurtherAddressesOnlyWhileTheyAreSet(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listenAt(first)
	go greet(l)
	port := netip.MustParseAddrPort(first.Addr().String()).Port()
	second, third := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), port)
	for _, set := range [][]netip.AddrPort{{second}, {second, third}, {third}, nil, {second}} {
		if err := l.Set(t.Context(), set, everybody); err != nil {
			t.Skipf("this machine has not all of 127.0.0.0/8: %v", err)
		}
		want := map[netip.AddrPort]bool{netip.MustParseAddrPort(first.Addr().String()): true}
		for _, address := range set {
			want[address] = true
		}
		for _, address := range []netip.AddrPort{netip.MustParseAddrPort(first.Addr().String()), second, third} {
			if got := greeted(address.String()); got != want[address] {
				t.Errorf("with %v: %s served %v", set, address, got)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if greeted(first.Addr().String()) || greeted(second.String()) {
		t.Error("served after Close")
	}
	if err := l.Set(t.Context(), nil, everybody); err == nil {
		t.Error("Set succeeds after Close")
	}
}

func TestListenersCloseConnectionsOfClientsThatAreNotAdmitted(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listenAt(first)
	defer l.Close()
	go greet(l)
	second := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), netip.MustParseAddrPort(first.Addr().String()).Port())
	if err := l.Set(t.Context(), []netip.AddrPort{second}, func(netip.Addr) bool { return false }); err != nil {
		t.Skipf("this machine has not all of 127.0.0.0/8: %v", err)
	}
	if greeted(second.String()) {
		t.Error("a client was served that is not admitted")
	}
	if !greeted(first.Addr().String()) {
		t.Error("the first address is not served")
	}
}

func TestOnlyPodsAndThisMachineReachTheServerAtTheBridge(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("198.18.7.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	for address, want := range map[string]bool{
		"198.18.7.9": true, "2001:db8::9": true, "127.0.0.1": true, "::1": true,
		"198.18.8.9": false, "2001:db8:1::9": false, "203.0.113.1": false,
	} {
		if got := onMachine(netip.MustParseAddr(address), pods); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
