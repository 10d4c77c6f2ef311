// Package nft owns what the agent's users of nftables share: access to the kernel's
// tables, their removal, and the kernel parameters by which connections between pods of
// a bridge pass the rules.
package nft

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/knftables"
)

// MasqueradeMark is the bit of a packet's mark by which the rules of the service proxy know what
// gets the node's address. kube-proxy uses the same.
const MasqueradeMark = "0x4000"

// Remedy is what to do where [Tables] returns an error. The kernel's release is the oldest that
// kube-proxy's nftables mode accepts; svc uses no newer feature of nftables.
const Remedy = "install nftables 1.0.1 or newer on Linux " + oldestKernel + " or newer, and run svclet as root"

const oldestKernel = "5.13"

// checkKernel returns an error for the release of a kernel that is too old.
func checkKernel(release string) error {
	kernel, err := version.ParseGeneric(release)
	if err != nil {
		return fmt.Errorf("read the release of the kernel: %w", err)
	}
	if kernel.LessThan(version.MustParseGeneric(oldestKernel)) {
		return fmt.Errorf("the kernel is Linux %s, older than %s", release, oldestKernel)
	}
	return nil
}

// BridgeParameters returns the kernel parameters, with the value 1, by which connections
// between pods of the same bridge pass the rules.
func BridgeParameters() []string {
	return []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"}
}

// Exists reports whether a table is there and has chains.
func Exists(ctx context.Context, table knftables.Interface) (bool, error) {
	if t, ok := table.(interface {
		exists(ctx context.Context) (bool, error)
	}); ok {
		return t.exists(ctx)
	}
	chains, err := table.List(ctx, "chains")
	if knftables.IsNotFound(err) {
		return false, nil
	}
	return len(chains) > 0, err
}

// HasRules reports whether a table is there and each of some chains has its number of rules:
// another program may have flushed them.
func HasRules(ctx context.Context, table knftables.Interface, chains map[string]int) (bool, error) {
	there, err := Exists(ctx, table)
	count := func(chain string) (int, error) {
		rules, err := table.ListRules(ctx, chain)
		if knftables.IsNotFound(err) {
			return 0, nil
		}
		return len(rules), err
	}
	if t, ok := table.(interface {
		countRules(chain string) (int, error)
	}); ok {
		count = t.countRules // nft would list the rules of all chains
	}
	for chain, want := range chains {
		if !there || err != nil {
			break
		}
		var rules int
		rules, err = count(chain)
		there = rules == want
	}
	return there, err
}

// Content is how many rules the chains of a table have, and how many elements its sets and
// maps, by their names.
type Content struct{ Rules, Elements map[string]int }

// Has reports whether a table is there and has a content. What else it has does not matter.
func Has(ctx context.Context, table knftables.Interface, c Content) (bool, error) {
	if t, ok := table.(interface {
		has(ctx context.Context, c Content) (bool, error)
	}); ok {
		return t.has(ctx, c)
	}
	there, err := HasRules(ctx, table, c.Rules)
	for name, want := range c.Elements {
		if !there || err != nil {
			break
		}
		var elements []*knftables.Element
		if elements, err = table.ListElements(ctx, "set", name); knftables.IsNotFound(err) {
			elements, err = table.ListElements(ctx, "map", name)
		}
		if there = len(elements) == want; knftables.IsNotFound(err) {
			there, err = false, nil
		}
	}
	return there, err
}

// Member is an element of a set or map, until it expires.
type Member struct {
	Key, Value []byte
	Expires    time.Duration
}

// Members returns what the sets and maps of a table have whose names are wanted, by the name; nothing
// if the table is not that of the kernel, or is missing. With an error it returns those before it.
func Members(ctx context.Context, table knftables.Interface, wanted func(name string) bool) (map[string][]Member, error) {
	if t, ok := table.(interface {
		members(ctx context.Context, wanted func(name string) bool) (map[string][]Member, error)
	}); ok {
		return t.members(ctx, wanted)
	}
	return nil, nil
}
