package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// discardPort is the port of the service discard (RFC 863), to which nothing is sent here.
const discardPort = 9

// dialer is [net.Dialer.DialContext].
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// missingRoutes returns the routes, as arguments of ip route add, without which this machine does not
// reach the services of ranges itself: through the bridge of its pods. There are none without the service
// proxy, and with a container runtime of the user's, whose bridge is not known.
func (o *NodeOptions) missingRoutes(ctx context.Context, ranges []netip.Prefix, dial dialer) []string {
	if !o.proxy || o.endpoint != "" {
		return nil
	}
	var routes []string
	for _, of := range unrouted(ctx, ranges, dial) {
		routes = append(routes, fmt.Sprintf("%s dev %s", of, o.bridge))
	}
	return routes
}

// unrouted returns those of the ranges to which this machine has no route, as without a default
// route. The kernel looks up the route before the service proxy replaces an address.
func unrouted(ctx context.Context, ranges []netip.Prefix, dial dialer) []netip.Prefix {
	var without []netip.Prefix
	for _, of := range ranges {
		// This sends no packet.
		conn, err := dial(ctx, "udp", netip.AddrPortFrom(of.Addr().Next(), discardPort).String())
		if err == nil {
			conn.Close()
		}
		if errors.Is(err, syscall.ENETUNREACH) {
			without = append(without, of)
		}
	}
	return without
}
