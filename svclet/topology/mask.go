package topology

import (
	"cmp"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// Mask is a set of NUMA nodes, with numbers from 0 to 63.
type Mask uint64

// MaxNodes is how many NUMA nodes a machine may have.
const MaxNodes = 64

// NewMask returns the set of these nodes.
func NewMask(nodes ...int) Mask {
	var m Mask
	for _, node := range nodes {
		m |= 1 << node
	}
	return m
}

// Has reports whether a node is in the set.
func (m Mask) Has(node int) bool { return m&(1<<node) != 0 }

// Count returns the number of nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Nodes returns the nodes in ascending order.
func (m Mask) Nodes() []int {
	nodes := make([]int, 0, m.Count())
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		nodes = append(nodes, bits.TrailingZeros64(rest))
	}
	return nodes
}

// Narrower reports whether a set has fewer nodes than other or, if both have as many,
// lower ones.
func (m Mask) Narrower(other Mask) bool {
	return cmp.Or(cmp.Compare(m.Count(), other.Count()), cmp.Compare(m, other)) < 0
}

// String returns the nodes as "0,2".
func (m Mask) String() string {
	var words []string
	for _, node := range m.Nodes() {
		words = append(words, strconv.Itoa(node))
	}
	return strings.Join(words, ",")
}

// Subsets iterates over all subsets of nodes but the empty one, those with fewer
// nodes first.
func Subsets(nodes []int) iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		var choose func(from, count int, chosen Mask) bool
		choose = func(from, count int, chosen Mask) bool {
			if count == 0 {
				return yield(chosen)
			}
			for i := from; i+count <= len(nodes); i++ {
				if !choose(i+1, count-1, chosen|NewMask(nodes[i])) {
					return false
				}
			}
			return true
		}
		for count := 1; count <= len(nodes); count++ {
			if !choose(0, count, 0) {
				return
			}
		}
	}
}
