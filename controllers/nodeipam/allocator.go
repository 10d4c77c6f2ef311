package nodeipam

import (
	"net/netip"
	"slices"
)

// cluster is the range of a family from which nodes get theirs, and how many
// bits the prefixes of those have.
type cluster struct {
	prefix netip.Prefix
	bits   int
}

// allocator gives ranges to nodes. It neither reads nor writes nodes, and is not
// safe for concurrent use.
type allocator struct {
	pools []*pool
	// nodes are the ranges that nodes have, by the nodes' names.
	nodes map[string][]netip.Prefix
}

// newAllocator gives ranges from each of the clusters, but none that overlaps
// one that is reserved.
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

// hold tells which ranges a node has. It returns whether others are free now.
func (a *allocator) hold(node string, ranges []netip.Prefix) (freed bool) {
	before := a.nodes[node]
	if slices.Equal(before, ranges) {
		return false
	}
	// New ones first: nothing is free between.
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

// allocate returns the ranges of a node: those that it has, or else one of each
// cluster that nobody has, and that are the node's from now on. There are none
// if a cluster has no range left.
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

// pool is what is known of the ranges of a cluster.
type pool struct {
	cluster
	// next is the address at which the next search begins: a range is not given
	// away again soon.
	next netip.Addr
	// taken counts the holders of ranges of the size that the pool gives, and odd
	// those of others, of which there are few.
	taken, odd map[netip.Prefix]int
}

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

// find finds a range that nobody has.
func (p *pool) find() (netip.Prefix, bool) {
	at := p.next
	// What is taken is met once, and an odd range twice if the search begins
	// inside it.
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

// blocked tells whether nobody has a part of the range, or else where the next
// one begins that may be free.
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

// after is the address that follows a range; the first of all follows the last.
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
