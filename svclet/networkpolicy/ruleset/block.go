package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	netutils "k8s.io/utils/net"
)

// blockOf returns the block of a peer and its exceptions. ok is false for a block of the
// other family. A block of which a part is invalid allows nothing.
func blockOf(f family, b *networkingv1.IPBlock) (block netip.Prefix, except []netip.Prefix, ok bool) {
	block, ok = prefix(b.CIDR)
	if !ok || familyOf(block.Addr()) != f {
		return netip.Prefix{}, nil, false
	}
	for _, cidr := range b.Except {
		e, ok := prefix(cidr)
		if !ok {
			return netip.Prefix{}, nil, false
		}
		if familyOf(e.Addr()) == f {
			except = append(except, e)
		}
	}
	except = outermost(except)
	if slices.ContainsFunc(except, func(e netip.Prefix) bool { return e.Bits() == 0 }) {
		return netip.Prefix{}, nil, false
	}
	return block, except, true
}

// prefix parses a CIDR as the API does, which accepts leading zeros.
func prefix(cidr string) (netip.Prefix, bool) {
	_, parsed, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(parsed.String())
	return p, err == nil
}

// within returns the expression that is true for addresses in one of the blocks.
func within(field string, blocks []netip.Prefix) []string {
	blocks = outermost(blocks)
	switch {
	case blocks[0].Bits() == 0:
		return nil // every address of the table's family
	case len(blocks) == 1:
		return []string{field, blocks[0].String()}
	}
	return []string{field, list(blocks)}
}

// outermost returns the blocks, sorted, without those that are in others: the intervals
// of a set must not overlap.
func outermost(blocks []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(blocks), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, b := range sorted {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(b) {
			kept = append(kept, b)
		}
	}
	return kept
}

// list returns the notation of a set.
func list(blocks []netip.Prefix) string {
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		texts[i] = b.String()
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}
