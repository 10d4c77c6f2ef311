package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/proxy/ruleset"
)

// endFlows makes the kernel forget flows of UDP, so that their next packets follow the
// rules.
func endFlows(family corev1.IPFamily, stale *ruleset.Stale) error {
	of := netlink.InetFamily(unix.AF_INET)
	if family == corev1.IPv6Protocol {
		of = unix.AF_INET6
	}
	filter := flowFilter{Stale: stale}
	if stale.NodePorts() {
		addresses, err := netlink.AddrList(nil, int(of))
		if err != nil {
			return err
		}
		filter.node = map[netip.Addr]bool{}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				filter.node[ip.Unmap()] = true
			}
		}
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, of, filter)
	return withoutNetlink(err)
}

// withoutNetlink explains the errors of a kernel without connection tracking through netlink:
// its request is one of an unknown subsystem or protocol.
func withoutNetlink(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("%w: the kernel has no nf_conntrack_netlink: %w", errors.ErrUnsupported, err)
	}
	return err
}

// flowFilter finds the stale flows, on a node with addresses.
type flowFilter struct {
	*ruleset.Stale
	node map[netip.Addr]bool
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	sent, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	answers, also := netip.AddrFromSlice(flow.Reverse.SrcIP)
	return ok && also && f.Has(netip.AddrPortFrom(sent.Unmap(), flow.Forward.DstPort), netip.AddrPortFrom(answers.Unmap(), flow.Reverse.SrcPort), f.node)
}
