package conflict

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"svc.dev/svc/svclet/iptables"
	"svc.dev/svc/svclet/nft"
)

// Read reads what this machine has. The path of iptables is empty if there is none; ip6tables
// is read only if pods have addresses of IPv6. With an error it returns what it could read.
func Read(ctx context.Context, program string, v6 bool) (Machine, error) {
	m := Machine{IPTables: program != "", UFW: ufwEnabled("/etc/ufw/ufw.conf")}
	err := errors.Join(m.readNetworks(), m.readFirewalls(ctx, program, v6))
	return m, err
}

// readFirewalls reads the tables of nftables and the chains of iptables.
func (m *Machine) readFirewalls(ctx context.Context, program string, v6 bool) (err error) {
	if m.Tables, err = nft.Names(); err != nil || program == "" {
		return err
	}
	m.Input, err = iptables.Read(ctx, iptables.Program(program, false), "filter", "INPUT")
	if err == nil && v6 {
		m.Input6, err = iptables.Read(ctx, iptables.Program(program, true), "filter", "INPUT")
	}
	return err
}

// readNetworks reads the interfaces, their addresses, and routes.
func (m *Machine) readNetworks() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
		m.Interfaces = append(m.Interfaces, link.Attrs().Name)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.IPNet.String()); err == nil {
			m.Networks = append(m.Networks, Network{names[a.LinkIndex], p})
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if p, err := netip.ParsePrefix(r.Dst.String()); err == nil {
			m.Networks = append(m.Networks, Network{names[r.LinkIndex], p})
		}
	}
	return nil
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
