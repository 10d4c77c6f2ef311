package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func prefixes(all ...string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, s := range all {
		parsed = append(parsed, netip.MustParsePrefix(s))
	}
	return parsed
}

func TestAllocate(t *testing.T) {
	v4 := cluster{netip.MustParsePrefix("10.0.0.0/22"), 24}
	v6 := cluster{netip.MustParsePrefix("fd00::/62"), 64}
	type held map[string][]netip.Prefix
	for _, test := range []struct {
		name     string
		clusters []cluster
		reserved []netip.Prefix
		held     held
		want     string
	}{
		{"one after the other", []cluster{v4}, nil, nil, "[10.0.0.0/24] [10.0.1.0/24] [10.0.2.0/24] [10.0.3.0/24] none"},
		{"one of each family", []cluster{v6, v4}, nil, nil, "[fd00::/64 10.0.0.0/24] [fd00:0:0:1::/64 10.0.1.0/24] [fd00:0:0:2::/64 10.0.2.0/24] [fd00:0:0:3::/64 10.0.3.0/24] none"},
		{"not what nodes have", []cluster{v4}, nil, held{"x": prefixes("10.0.1.0/24")}, "[10.0.0.0/24] [10.0.2.0/24] [10.0.3.0/24] none"},
		{"nor what contains a part of that", []cluster{v4}, nil, held{"x": prefixes("10.0.1.64/26"), "y": prefixes("10.0.2.0/28")}, "[10.0.0.0/24] [10.0.3.0/24] none"},
		{"nor what is in it", []cluster{v4}, nil, held{"x": prefixes("10.0.0.0/23")}, "[10.0.2.0/24] [10.0.3.0/24] none"},
		{"nor what is reserved", []cluster{v4, v6}, prefixes("10.0.0.0/23", "fd00:0:0:1::/108"), nil, "[10.0.2.0/24 fd00::/64] [10.0.3.0/24 fd00:0:0:2::/64] none"},
		{"nothing, if all is reserved", []cluster{v4}, prefixes("10.0.0.0/8"), nil, "none"},
		{"what others have elsewhere does not matter", []cluster{v4}, prefixes("10.1.0.0/16"), held{"x": prefixes("192.168.0.0/24")}, "[10.0.0.0/24] [10.0.1.0/24] [10.0.2.0/24] [10.0.3.0/24] none"},
		{"the whole cluster at once", []cluster{{netip.MustParsePrefix("10.0.0.0/24"), 24}}, nil, nil, "[10.0.0.0/24] none"},
		{"up to the last address", []cluster{{netip.MustParsePrefix("255.255.255.254/31"), 32}}, nil, nil, "[255.255.255.254/32] [255.255.255.255/32] none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAllocator(test.clusters, test.reserved)
			for node, ranges := range test.held {
				a.hold(node, ranges)
			}
			got := ""
			for i := 0; ; i++ {
				ranges, ok := a.allocate(fmt.Sprint("node-", i))
				if !ok {
					break
				}
				got += fmt.Sprint(ranges, " ")
			}
			if got += "none"; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestRangesAreKeptAndReusedWhenFree(t *testing.T) {
	a := newAllocator([]cluster{{netip.MustParsePrefix("10.0.0.0/23"), 24}}, nil)
	one, _ := a.allocate("one")
	if again, _ := a.allocate("one"); fmt.Sprint(again) != fmt.Sprint(one) {
		t.Errorf("a second allocation for a node returns %v, want %v", again, one)
	}
	two, _ := a.allocate("two")
	if _, ok := a.allocate("three"); ok {
		t.Error("a third range is allocated, but the cluster has two")
	}
	// A user has set the same range on both nodes.
	a.hold("one", two)
	if a.hold("two", nil); a.pools[0].taken[two[0]] != 1 {
		t.Error("a range of two nodes is free when one of them is deleted")
	}
	if three, ok := a.allocate("three"); !ok || three[0] != one[0] {
		t.Errorf("got %v, want %v", three, one)
	}
}

// TestAllocatorAtRandom adds and deletes random nodes, allocates their ranges, lets
// users set ranges, and replaces the allocator by a new one that is told of all nodes,
// as after a restart.
func TestAllocatorAtRandom(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		clusters := []cluster{
			{netip.MustParsePrefix("10.0.0.0/20"), 20 + random.IntN(8)},
			{netip.MustParsePrefix("fd00:1::/56"), 56 + random.IntN(10)},
		}
		reserved := prefixes(fmt.Sprintf("10.0.%d.0/%d", random.IntN(16), 20+random.IntN(12)), "fd00:1:0:10::/108")
		for i := range reserved {
			reserved[i] = reserved[i].Masked()
		}
		a := newAllocator(clusters, reserved)
		nodes := map[string][]netip.Prefix{} // as the API server has them
		for step := range 1500 {
			name := fmt.Sprint("node-", random.IntN(60))
			switch what := random.IntN(100); {
			case what < 60:
				had := nodes[name]
				got, ok := a.allocate(name)
				if !ok {
					if free := someFree(clusters, reserved, nodes); free {
						t.Fatalf("seed %d, step %d: no range is allocated for %s, but one is free: %v", seed, step, name, nodes)
					}
					continue
				}
				nodes[name] = got
				if had != nil && fmt.Sprint(had) != fmt.Sprint(got) {
					t.Fatalf("seed %d, step %d: %s had %v and got %v", seed, step, name, had, got)
				}
				if had == nil {
					check(t, seed, step, name, got, clusters, reserved, nodes)
				}
			case what < 95:
				delete(nodes, name)
				a.hold(name, nil)
			case what < 98 && nodes[name] == nil:
				byHand := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(32)), 0}), 19+random.IntN(10)).Masked()}
				nodes[name] = byHand
				a.hold(name, byHand)
			default:
				a = newAllocator(clusters, reserved)
				for name, ranges := range nodes {
					a.hold(name, ranges)
				}
			}
		}
	}
}

// check fails if the ranges of a node are not those of the clusters, are reserved, or
// overlap with those of another node.
func check(t *testing.T, seed uint64, step int, name string, got []netip.Prefix, clusters []cluster, reserved []netip.Prefix, nodes map[string][]netip.Prefix) {
	t.Helper()
	for i, r := range got {
		if !clusters[i].prefix.Contains(r.Addr()) || r.Bits() != clusters[i].bits || r != r.Masked() {
			t.Fatalf("seed %d, step %d: %v is not a range of %v", seed, step, r, clusters[i])
		}
		for _, other := range reserved {
			if other.Overlaps(r) {
				t.Fatalf("seed %d, step %d: %v is reserved: %v", seed, step, r, other)
			}
		}
		for node, theirs := range nodes {
			for _, other := range theirs {
				if node != name && other.Overlaps(r) {
					t.Fatalf("seed %d, step %d: %s gets %v, but %s has %v", seed, step, name, r, node, other)
				}
			}
		}
	}
}

// someFree reports whether every cluster has a free range.
func someFree(clusters []cluster, reserved []netip.Prefix, nodes map[string][]netip.Prefix) bool {
	taken := reserved
	for _, ranges := range nodes {
		taken = append(taken[:len(taken):len(taken)], ranges...)
	}
	for _, c := range clusters {
		free := false
		r := netip.PrefixFrom(c.prefix.Addr(), c.bits)
		for ; c.prefix.Contains(r.Addr()) && !free; r = netip.PrefixFrom(after(r), c.bits) {
			free = true
			for _, other := range taken {
				free = free && !other.Overlaps(r)
			}
		}
		if !free {
			return false
		}
	}
	return true
}
