package topology

import "math"

// Hint is a set of NUMA nodes from which a resource can be allocated. Preferred reports
// that no smaller set could ever satisfy the request. Nodes is 0 if every set can.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// Hints are the hints of one provider by resource. A resource that is nil has no
// preference; one that is empty cannot be allocated from any set of nodes.
type Hints map[string][]Hint

// Policy is --topology-manager-policy.
type Policy string

// The policies.
const (
	None           Policy = "none"
	BestEffort     Policy = "best-effort"
	Restricted     Policy = "restricted"
	SingleNUMANode Policy = "single-numa-node"
)

// Merger merges the hints of all providers.
type Merger struct {
	Policy Policy
	// Nodes are the machine's NUMA nodes.
	Nodes []int
	// Closest prefers sets of close nodes to sets of low ones
	// (prefer-closest-numa-nodes=true).
	Closest  bool
	Distance map[int][]int
}

// Merge returns the set of nodes from which all resources are to be allocated, and
// whether the policy admits the container. The set is 0 if there is no preference.
func (m Merger) Merge(providers []Hints) (best Hint, admit bool) {
	if m.Policy == None || m.Policy == "" {
		return Hint{}, true
	}
	all := NewMask(m.Nodes...)
	lists := listed(providers)
	if m.Policy == SingleNUMANode {
		for i := range lists {
			lists[i] = onOneNode(lists[i])
		}
	}
	best = m.best(all, lists)
	switch m.Policy {
	case BestEffort:
		return best, true
	case SingleNUMANode:
		if best.Nodes == all {
			best.Nodes = 0
		}
	}
	return best, best.Preferred
}

// listed returns the hints of each resource, at least one for each.
func listed(providers []Hints) [][]Hint {
	var lists [][]Hint
	for _, hints := range providers {
		if len(hints) == 0 {
			lists = append(lists, []Hint{{Preferred: true}})
		}
		for _, list := range hints {
			switch {
			case list == nil:
				list = []Hint{{Preferred: true}}
			case len(list) == 0:
				list = []Hint{{}}
			}
			lists = append(lists, list)
		}
	}
	return lists
}

// onOneNode returns the preferred hints for one node, or without preference.
func onOneNode(hints []Hint) []Hint {
	var kept []Hint
	for _, h := range hints {
		if h.Preferred && h.Nodes.Count() <= 1 {
			kept = append(kept, h)
		}
	}
	return kept
}

// best returns the best combination of one hint of each list. Without a combination
// that has nodes in common it is all nodes, not preferred.
func (m Merger) best(all Mask, lists [][]Hint) Hint {
	best, found := Hint{Nodes: all}, false
	target := widestNeed(lists)
	combine(lists, func(chosen []Hint) {
		merged := Hint{Nodes: all, Preferred: true}
		var first Mask
		for _, h := range chosen {
			if h.Nodes != 0 {
				if first == 0 {
					first = h.Nodes
				}
				// Only equal sets are preferred together.
				merged.Preferred = merged.Preferred && h.Nodes == first
				merged.Nodes &= h.Nodes
			}
			merged.Preferred = merged.Preferred && h.Preferred
		}
		if merged.Nodes != 0 && (!found || m.better(merged, best, target)) {
			best, found = merged, true
		}
	})
	return best
}

// widestNeed returns the largest of the smallest sets of all lists: fewer nodes
// cannot satisfy all requests.
func widestNeed(lists [][]Hint) int {
	widest := 0
	for _, list := range lists {
		smallest := math.MaxInt
		for _, h := range list {
			if h.Nodes != 0 {
				smallest = min(smallest, h.Nodes.Count())
			}
		}
		if smallest != math.MaxInt {
			widest = max(widest, smallest)
		}
	}
	return widest
}

// better reports whether candidate is better than best. Of sets that are not
// preferred, those of the size target are best, then larger ones, then smaller ones:
// the latter cannot have all resources.
func (m Merger) better(candidate, best Hint, target int) bool {
	if candidate.Preferred != best.Preferred {
		return candidate.Preferred
	}
	have, want := best.Nodes.Count(), candidate.Nodes.Count()
	if candidate.Preferred || have > target {
		return m.closer(candidate.Nodes, best.Nodes)
	}
	if have == target || want > target {
		return want == target && m.closer(candidate.Nodes, best.Nodes)
	}
	if want != have {
		return want > have
	}
	return m.closer(candidate.Nodes, best.Nodes)
}

// closer reports whether a is smaller than b or, if both have as many nodes, closer
// together or lower.
func (m Merger) closer(a, b Mask) bool {
	if !m.Closest || a.Count() != b.Count() {
		return a.Narrower(b)
	}
	x, y := m.spread(a), m.spread(b)
	return x < y || x == y && a.Narrower(b)
}

// spread returns the mean distance between all nodes of a set.
func (m Merger) spread(nodes Mask) float64 {
	sum, count := 0, 0
	for _, a := range nodes.Nodes() {
		for _, b := range nodes.Nodes() {
			if distances := m.Distance[a]; b < len(distances) {
				sum += distances[b]
				count++
			}
		}
	}
	if count == 0 {
		return 0
	}
	return float64(sum) / float64(count)
}

// combine calls each with every combination of one hint of each list.
func combine(lists [][]Hint, each func([]Hint)) {
	chosen := make([]Hint, 0, len(lists))
	var next func()
	next = func() {
		if len(chosen) == len(lists) {
			each(chosen)
			return
		}
		for _, h := range lists[len(chosen)] {
			chosen = append(chosen, h)
			next()
			chosen = chosen[:len(chosen)-1]
		}
	}
	next()
}
