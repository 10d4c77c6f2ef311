package cluster

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestRangesWithoutARouteAreFound(t *testing.T) {
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		switch {
		case network != "udp":
			t.Errorf("network %s", network)
		case strings.HasPrefix(address, "10.0.0."):
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
		case strings.HasPrefix(address, "10.2.0."):
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
		}
		conn, other := net.Pipe()
		return conn, other.Close()
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.2.0.0/24")}
	if got := unrouted(t.Context(), ranges, dial); !slices.Equal(got, ranges[:1]) {
		t.Errorf("got %v", got)
	}
}

func TestServicesWithoutARouteHaveOneByTheBridge(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ENETUNREACH }
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/112")}
	for _, test := range []struct {
		node NodeOptions
		want []string
	}{
		{NodeOptions{proxy: true, bridge: "svc0"}, []string{"10.0.0.0/24 dev svc0", "fd00::/112 dev svc0"}},
		{NodeOptions{proxy: true, bridge: "svc0", endpoint: "unix:///other.sock"}, nil},
		{NodeOptions{bridge: "svc0"}, nil},
	} {
		if got := test.node.missingRoutes(t.Context(), ranges, refuse); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.node, got, test.want)
		}
	}
}
