package conflict

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"svc.dev/svc/svclet/nft"
)

// Read reads what this machine has.
func Read(iptables string) (Machine, error) {
	m := Machine{IPTables: iptables != "", UFW: ufwEnabled("/etc/ufw/ufw.conf")}
	links, err := netlink.LinkList()
	if err != nil {
		return m, fmt.Errorf("list network interfaces: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
		m.Interfaces = append(m.Interfaces, link.Attrs().Name)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return m, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.IPNet.String()); err == nil {
			m.Networks = append(m.Networks, Network{names[a.LinkIndex], p})
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return m, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if p, err := netip.ParsePrefix(r.Dst.String()); err == nil {
			m.Networks = append(m.Networks, Network{names[r.LinkIndex], p})
		}
	}
	m.Tables, err = nft.Names()
	return m, err
}

// ufwEnabled reports whether the configuration of ufw enables it.
func ufwEnabled(file string) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return false // it is not installed, or cannot be told from that
	}
	for line := range strings.Lines(string(content)) {
		if strings.EqualFold(strings.TrimSpace(line), "ENABLED=yes") {
			return true
		}
	}
	return false
}
