package dns

import (
	"context"
	"net/netip"

	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/services"
	"svc.dev/svc/svclet/syncloop"
)

const (
	// linkSuffix is appended to the name of the node's bridge.
	linkSuffix = "-ns"
	// defaultLink is the first part of the name on a node without a bridge of svc.
	defaultLink = "svclet"
)

// Address6 is the IPv6 address of every node's server. Kernels lead no connection from
// elsewhere to ::1, as they do to 127.0.0.1, so it is on an interface of its own, and of
// a range of private addresses (RFC 4193) that only this interface has.
func Address6() netip.Addr { return netip.MustParseAddr("fd9e:2c41:70b6::53") }

// LinkName returns the name of the interface with [Address6] on the node with a bridge;
// empty for a node without one of svc.
func LinkName(bridge string) string {
	if bridge == "" {
		bridge = defaultLink
	}
	return bridge + linkSuffix
}

// link keeps the interface. It is made when the service first has an IPv6 address, and
// stays when the agent stops.
type link struct {
	Options
	changes *services.Changes
	ensure  func(name string) error
}

func newLink(o Options) *link {
	return &link{Options: o, changes: o.Services.Follow(), ensure: ensureLink}
}

// run keeps the interface until ctx is done.
func (l *link) run(ctx context.Context) {
	check := func(context.Context) { l.changes.Signal() } // another program may have removed it
	syncloop.Loop{Clock: l.Clock, Changed: l.changes.Changed, Signal: l.changes.Signal, Sync: l.sync, Check: check}.Run(ctx)
}

// sync makes the interface, if the service has an IPv6 address. It reports whether it is
// there or not needed.
func (l *link) sync(ctx context.Context) bool {
	l.changes.Take()
	service := l.Services.Get(ServiceKey()).Service
	if service == nil {
		return true
	}
	for _, text := range service.Spec.ClusterIPs {
		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is6() {
			continue // None, or IPv4
		}
		if err := l.ensure(l.Link); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to make the interface for the IPv6 address of the DNS server, will retry", "interface", l.Link)
			return false
		}
	}
	return true
}
