package nodeipam

import (
	"net/netip"
	"slices"
)

// cluster is the cluster CIDR of an IP family, and the prefix length of the nodes'
// CIDRs.
type cluster struct {
	prefix netip.Prefix
	bits   int
}

// allocator allocates CIDRs to nodes, in memory. It is not safe for concurrent
// use.
type allocator struct {
	pools []*pool
	// nodes are the CIDRs of nodes, by name.
	nodes map[string][]netip.Prefix
}

// newAllocator returns an allocator of CIDRs from each of the clusters that do not
// overlap the reserved ones.
func newAllocator(clusters []cluster, reserved []netip.Prefix) *allocator {
	a := &allocator{nodes: map[string][]netip.Prefix{}}
	for _, c := range clusters {
		p := &pool{cluster: c, next: c.prefix.Addr(), taken: map[netip.Prefix]int{}, odd: map[netip.Prefix]int{}}
		for _, r := range reserved {
			p.hold(r)
		}
		a.pools = append(a.pools, p)
	}
	return a
}

// hold records the CIDRs of a node, and reports whether others have become free.
func (a *allocator) hold(node string, ranges []netip.Prefix) (freed bool) {
	before := a.nodes[node]
	if slices.Equal(before, ranges) {
		return false
	}
	// Hold the new ones first, so that no common one is free in between.
	for _, p := range a.pools {
		for _, r := range ranges {
			p.hold(r)
		}
		for _, r := range before {
			p.release(r)
		}
	}
	if len(ranges) == 0 {
		delete(a.nodes, node)
	} else {
		a.nodes[node] = ranges
	}
	return len(before) > 0
}

// allocate returns the CIDRs of a node: those that it has, or else a free one of
// each cluster, which the node holds from now on. It reports false if a cluster
// is exhausted.
func (a *allocator) allocate(node string) ([]netip.Prefix, bool) {
	if ranges := a.nodes[node]; len(ranges) > 0 {
		return ranges, true
	}
	var ranges []netip.Prefix
	for _, p := range a.pools {
		r, ok := p.find()
		if !ok {
			return nil, false
		}
		ranges = append(ranges, r)
	}
	a.hold(node, ranges)
	return ranges, true
}

// pool is the allocation of the CIDRs of a cluster.
type pool struct {
	cluster
	// next is the address at which the next search begins, so that a CIDR that was
	// released is not soon allocated again.
	next netip.Addr
	// taken counts the holders of CIDRs with the prefix length of the pool, and odd
	// those with other prefix lengths, which are few.
	taken, odd map[netip.Prefix]int
}

// counts returns the counts that r belongs to, nil if it is outside of the pool.
func (p *pool) counts(r netip.Prefix) map[netip.Prefix]int {
	switch {
	case !p.prefix.Overlaps(r):
		return nil
	case r.Bits() == p.bits:
		return p.taken
	default:
		return p.odd
	}
}

func (p *pool) hold(r netip.Prefix) {
	if counts := p.counts(r); counts != nil {
		counts[r]++
	}
}

func (p *pool) release(r netip.Prefix) {
	if counts := p.counts(r); counts != nil {
		if counts[r]--; counts[r] <= 0 {
			delete(counts, r)
		}
	}
}

// find returns a free CIDR, and false if there is none.
func (p *pool) find() (netip.Prefix, bool) {
	at := p.next
	// The search meets a taken CIDR at most once, and an odd one at most twice: it
	// may begin inside it.
	for range len(p.taken) + 2*len(p.odd) + 1 {
		if !p.prefix.Contains(at) {
			at = p.prefix.Addr()
		}
		r := netip.PrefixFrom(at, p.bits)
		end, free := p.blocked(r)
		if free {
			p.next = after(r)
			return r, true
		}
		at = end
	}
	return netip.Prefix{}, false
}

// blocked reports whether no part of r is held, and otherwise returns the address
// of the next CIDR that may be free.
func (p *pool) blocked(r netip.Prefix) (next netip.Addr, free bool) {
	for odd := range p.odd {
		if odd.Overlaps(r) {
			if odd.Bits() < r.Bits() {
				return after(odd), false
			}
			return after(r), false
		}
	}
	return after(r), p.taken[r] == 0
}

// after returns the address that follows r; after the last address, the first one.
func after(r netip.Prefix) netip.Addr {
	bytes := r.Masked().Addr().AsSlice()
	carry := 0
	for i := len(bytes) - 1; i >= 0; i-- {
		sum := int(bytes[i]) + carry
		if r.Bits() > 0 && i == (r.Bits()-1)/8 {
			sum += 1 << (7 - (r.Bits()-1)%8)
		}
		bytes[i], carry = byte(sum), sum>>8
	}
	addr, _ := netip.AddrFromSlice(bytes) // of the length that it had
	return addr
}
