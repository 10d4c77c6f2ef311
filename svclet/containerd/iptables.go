package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/iptables"
	"svc.dev/svc/svclet/nft"
)

// rule is an iptables rule.
type rule struct {
	v6           bool
	table, chain string
	args         []string // as iptables lists them
}

// equal reports whether both are the same.
func (r rule) equal(other rule) bool {
	return r.v6 == other.v6 && r.table == other.table && r.chain == other.chain && slices.Equal(r.args, other.args)
}

// masqueradeRules returns the rules by which connections of pods that leave the machine
// get its address.
func masqueradeRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			rules = append(rules, rule{prefix.Addr().Is6(), "nat", "POSTROUTING", []string{"-s", prefix.Masked().String(), "!", "-o", bridge, "-j", "MASQUERADE"}})
		}
	}
	return rules
}

// forwardRules returns the rules by which connections of pods with addresses of the given
// ranges leave the machine and reach it, whatever the forwarding policy is.
func forwardRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue // Validate has refused it
		}
		v6 := prefix.Addr().Is6()
		rules = append(rules,
			rule{v6, "filter", "FORWARD", []string{"-i", bridge, "-j", "ACCEPT"}},
			rule{v6, "filter", "FORWARD", []string{"-o", bridge, "-j", "ACCEPT"}},
		)
	}
	return rules
}

// serviceRules returns the rules by which connections to services that others make to this machine
// reach pods of other nodes with addresses of the given ranges' families, whatever the forwarding
// policy is. They have the mark of the service proxy; what follows is of connections whose
// destination was replaced. The chain KUBE-FORWARD of kube-proxy's iptables mode has the like. The
// comment tells them from those of the administrator.
func serviceRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		for _, match := range []string{
			"-m mark --mark " + nft.MasqueradeMark + "/" + nft.MasqueradeMark,
			"-m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED",
		} {
			rules = append(rules, rule{isIPv6(cidr), "filter", "FORWARD", strings.Fields(match + " -m comment --comment " + bridge + "-services -j ACCEPT")})
		}
	}
	return rules
}

// isIPv6 reports whether a range has addresses of IPv6.
func isIPv6(cidr string) bool {
	prefix, err := netip.ParsePrefix(cidr)
	return err == nil && prefix.Addr().Is6()
}

// addRules adds the iptables rules that do not exist, and reports whether it has added any.
// It reads each chain once unless it changes it.
func addRules(ctx context.Context, program string, rules []rule) (added bool, err error) {
	type place struct {
		v6           bool
		table, chain string
	}
	chains := map[place]iptables.Chain{}
	for _, rule := range rules {
		at := place{rule.v6, rule.table, rule.chain}
		chain, known := chains[at]
		if !known {
			if chain, err = iptables.Read(ctx, iptables.Program(program, rule.v6), rule.table, rule.chain); err != nil {
				// iptables adds rules to a chain that only nft can list.
				klog.FromContext(ctx).V(2).Info("Failed to read rules of iptables", "err", err)
			}
			chains[at] = chain
		}
		one, err := rule.add(ctx, program, chain)
		if err != nil {
			return added, err
		}
		if one {
			added = true
			delete(chains, at)
		}
	}
	return added, nil
}

// add adds a rule that does not exist to the end of its chain, or in front of a rule that
// refuses every packet: such a one ends the chains of Fedora's iptables-services.
func (r rule) add(ctx context.Context, program string, chain iptables.Chain) (added bool, err error) {
	effective, refusal := chain.Rules, chain.Refusal()
	if refusal >= 0 {
		effective = effective[:refusal]
	}
	switch {
	case slices.Contains(effective, iptables.WithoutComments(strings.Join(r.args, " "))):
		return false, nil
	case refusal >= 0:
		err = r.remove(ctx, program)
		if err == nil {
			err = r.run(ctx, program, "--insert", r.chain, strconv.Itoa(refusal+1))
		}
	case r.run(ctx, program, "--check", r.chain) == nil:
		return false, nil
	default:
		err = r.run(ctx, program, "--append", r.chain)
	}
	return err == nil, err
}

// removeRules removes the iptables rules that exist.
func removeRules(ctx context.Context, program string, rules []rule) error {
	for _, rule := range rules {
		if err := rule.remove(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a rule as often as it exists.
func (r rule) remove(ctx context.Context, program string) error {
	for r.run(ctx, program, "--check", r.chain) == nil {
		if err := r.run(ctx, program, "--delete", r.chain); err != nil {
			return err
		}
	}
	return nil
}

// run runs iptables or ip6tables for a rule.
func (r rule) run(ctx context.Context, program string, action ...string) error {
	_, err := iptables.Run(ctx, iptables.Program(program, r.v6), slices.Concat([]string{"--table", r.table}, action, r.args)...)
	return err
}

// recordTables keeps in a file which tables of nftables are missing that iptables makes for rules. With
// the iptables of the kernel's older interface there are never any.
func (c Config) recordTables(rules []rule) error {
	made, err := c.madeTables()
	if err != nil {
		return err
	}
	for _, r := range rules {
		table := r.nftTable()
		if slices.Contains(made, table) {
			continue
		}
		found, err := table.Found()
		if err != nil {
			return err
		}
		if !found {
			made = append(made, table)
		}
	}
	var content strings.Builder
	for _, table := range made {
		fmt.Fprintln(&content, table.Family, table.Name)
	}
	if err := os.MkdirAll(c.cniDir(), 0o711); err != nil {
		return fmt.Errorf("keep which tables iptables has made: %w", err)
	}
	_, err = replaceFile(c.tablesFile(), []byte(content.String()))
	return err
}

// nftTable returns the table of nftables that has the rule.
func (r rule) nftTable() nft.Table {
	if r.v6 {
		return nft.Table{Family: knftables.IPv6Family, Name: r.table}
	}
	return nft.Table{Family: knftables.IPv4Family, Name: r.table}
}

// madeTables returns the tables of the file.
func (c Config) madeTables() ([]nft.Table, error) {
	content, err := os.ReadFile(c.tablesFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which tables iptables has made: %w", err)
	}
	var made []nft.Table
	for line := range strings.Lines(string(content)) {
		if family, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			made = append(made, nft.Table{Family: knftables.Family(family), Name: name})
		}
	}
	return made, nil
}

// removeTables removes the tables of the file that have no rules any more: an empty chain FORWARD
// stays where another program has made it, or uses it.
func (c Config) removeTables() error {
	made, err := c.madeTables()
	for _, table := range made {
		err = errors.Join(err, table.RemoveUnused())
	}
	return err
}
