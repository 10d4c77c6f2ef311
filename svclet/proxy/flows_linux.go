package proxy

import (
	"errors"
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
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, of, flowFilter{stale})
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		// The table has changed meanwhile: try again for the flows that were left out.
		_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, of, flowFilter{stale})
	}
	return err
}

// flowFilter finds the stale flows.
type flowFilter struct{ *ruleset.Stale }

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	sent, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	answers, also := netip.AddrFromSlice(flow.Reverse.SrcIP)
	return ok && also && f.Has(netip.AddrPortFrom(sent.Unmap(), flow.Forward.DstPort), netip.AddrPortFrom(answers.Unmap(), flow.Reverse.SrcPort))
}
