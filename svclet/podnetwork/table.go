//go:build linux

package podnetwork

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

const (
	// ownSet has this node's pod CIDRs, and clusterSet those of all nodes.
	ownSet     = "own-pods"
	clusterSet = "cluster-pods"
	natChain   = "nat-postrouting"
)

// ranges are the elements of the sets.
type ranges struct{ own, cluster []netip.Prefix }

// table is the table of an IP family, by which connections of pods get the node's address
// when they leave the cluster's pods.
type table struct {
	nft    knftables.Interface
	v6     bool
	bridge string
	// tunnel is the interface of tunnels.
	tunnel string
	// written is what the table has; nil if that is not known.
	written *ranges
}

// of returns the ranges of the table's family.
func (t *table) of(all ranges) ranges {
	other := func(p netip.Prefix) bool { return p.Addr().Is6() != t.v6 }
	return ranges{slices.DeleteFunc(slices.Clone(all.own), other), slices.DeleteFunc(slices.Clone(all.cluster), other)}
}

// write makes the table have ranges. It writes only what has changed.
func (t *table) write(ctx context.Context, all ranges) error {
	want, tx := t.of(all), t.nft.NewTransaction()
	if t.written == nil {
		t.create(tx)
		change(tx, ownSet, nil, want.own)
		change(tx, clusterSet, nil, want.cluster)
	} else {
		change(tx, ownSet, t.written.own, want.own)
		change(tx, clusterSet, t.written.cluster, want.cluster)
	}
	if tx.NumOperations() == 0 {
		return nil
	}
	t.written = nil // what the table has after a failure is not known for sure
	if err := t.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("write the rules of the pod network: %w", err)
	}
	t.written = &want
	return nil
}

// create adds the table, without elements, in place of what is there.
func (t *table) create(tx *knftables.Transaction) {
	comment := ptr.To("the pod network, by svclet")
	tx.Add(&knftables.Table{Comment: comment})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: comment})
	kind := "ipv4_addr"
	if t.v6 {
		kind = "ipv6_addr"
	}
	for _, name := range []string{ownSet, clusterSet} {
		tx.Add(&knftables.Set{Name: name, Type: kind, Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	}
	tx.Add(&knftables.Chain{Name: natChain, Type: ptr.To(knftables.NATType), Hook: ptr.To(knftables.PostroutingHook), Priority: ptr.To(knftables.SNATPriority)})
	for _, rule := range t.rules() {
		tx.Add(&knftables.Rule{Chain: natChain, Rule: rule})
	}
}

// ip returns nft's name of the family in expressions.
func (t *table) ip() string {
	if t.v6 {
		return "ip6"
	}
	return "ip"
}

// rules returns those of the chain.
func (t *table) rules() []string {
	ip := t.ip()
	return []string{
		fmt.Sprintf("%s saddr @%s %s daddr != @%s oifname != %q masquerade fully-random", ip, ownSet, ip, clusterSet, t.bridge),
		// A program of this machine, or of its network, that connects to a service has an address
		// of the machine. The answer to that would not come back through the tunnel.
		fmt.Sprintf("oifname %q %s saddr != @%s masquerade fully-random", t.tunnel, ip, clusterSet),
	}
}

// change adds to a transaction what makes a set have other elements, both sorted.
func change(tx *knftables.Transaction, set string, before, after []netip.Prefix) {
	has := func(all []netip.Prefix, p netip.Prefix) bool {
		_, found := slices.BinarySearchFunc(all, p, netip.Prefix.Compare)
		return found
	}
	for _, p := range before {
		if !has(after, p) {
			tx.Delete(&knftables.Element{Set: set, Key: []string{p.String()}})
		}
	}
	for _, p := range after {
		if !has(before, p) {
			tx.Add(&knftables.Element{Set: set, Key: []string{p.String()}})
		}
	}
}

// errNoNftables explains what a machine lacks.
func errNoNftables(err error) error {
	return fmt.Errorf("pod network: %w: %s, or turn it off with --pod-network=none", err, nft.Remedy)
}
