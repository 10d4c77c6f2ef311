package conflict

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// Read reads what this machine has.
func Read(ctx context.Context, iptables string) (Machine, error) {
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
	m.Tables, err = tables(ctx)
	return m, err
}

// tables returns the names of nftables' tables. A machine without nft has none.
func tables(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nft list tables: %w", err)
	}
	return tableNames(string(out)), nil
}

// tableNames returns the names in lines such as "table inet firewalld".
func tableNames(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 3 {
			names = append(names, words[2])
		}
	}
	return names
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
