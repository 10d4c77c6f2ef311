package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Found reports whether the kernel has the table.
func (t Table) Found() (bool, error) {
	c, err := dial()
	if err != nil {
		return false, err
	}
	tables, err := list(c)
	return slices.ContainsFunc(tables, func(found *nftables.Table) bool {
		return found.Name == t.Name && found.Family == kernelFamilies()[t.Family]
	}), err
}

// ofIPTables are the names of the chains that iptables makes.
var ofIPTables = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// RemoveUnused removes the table if it has no rules and no sets, and only chains by which the kernel enters it
// and which iptables makes, of which none drops packets.
func (t Table) RemoveUnused() error {
	if found, err := t.Found(); !found || err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	family := kernelFamilies()[t.Family]
	table := &nftables.Table{Name: t.Name, Family: family}
	chains, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("list the chains of the table %s: %w", t.Name, err)
	}
	for _, chain := range chains {
		if chain.Table.Name != t.Name {
			continue
		}
		rules, err := c.GetRules(table, chain)
		if err != nil {
			return fmt.Errorf("list the rules of the table %s: %w", t.Name, err)
		}
		if len(rules) > 0 || chain.Hooknum == nil || !slices.Contains(ofIPTables, chain.Name) || chain.Policy != nil && *chain.Policy != nftables.ChainPolicyAccept {
			return nil
		}
	}
	sets, err := c.GetSets(table)
	if err != nil || len(sets) > 0 {
		return err
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) { // it was removed meanwhile
		return fmt.Errorf("remove the table %s: %w", t.Name, err)
	}
	return nil
}
