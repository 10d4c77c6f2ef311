package cpus

import (
	"maps"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/topology"
)

// distribute takes the same number of CPUs from each of as few NUMA nodes as have them
// (distribute-cpus-across-numa), in groups of a size: whole cores, or single CPUs. If no
// set of nodes allows it, it packs.
func distribute(t *topology.Topology, available cpuset.CPUSet, count, group int) (cpuset.CPUSet, error) {
	if count > available.Size() {
		return cpuset.New(), errNotEnough
	}
	if count == 0 || count%group != 0 {
		return pack(t, available, count)
	}
	d := distribution{t: t, available: available, count: count, group: group}
	d.nodes = (&picker{t: t, available: available}).sorted(topology.Node)
	for size := 1; size <= len(d.nodes); size++ {
		if plan := d.best(size); plan != nil {
			return d.take(plan)
		}
	}
	return pack(t, available, count)
}

// distribution is a request to distribute CPUs over NUMA nodes.
type distribution struct {
	t            *topology.Topology
	available    cpuset.CPUSet
	nodes        []int
	count, group int
}

// plan is which nodes CPUs come from: the same number from each, and one group after the
// other from those of the remainder.
type plan struct {
	nodes     []int
	even      int
	remainder []int
}

func (d *distribution) free(node int) int { return d.t.In(d.available, topology.Node, node).Size() }

// best returns the plan for this many nodes that leaves the nodes most evenly used, nil
// if there is none.
func (d *distribution) best(size int) *plan {
	var best *plan
	balance := math.MaxFloat64
	choose(d.nodes, size, func(combination []int) {
		if p, left := d.plan(combination); p != nil && left < balance {
			best, balance = p, left
		}
	})
	return best
}

// plan returns the plan for these nodes, and how unevenly it leaves all nodes used. It is nil
// if they lack CPUs.
func (d *distribution) plan(nodes []int) (*plan, float64) {
	p := &plan{nodes: slices.Clone(nodes), even: d.count / len(nodes) / d.group * d.group}
	left, groups := map[int]int{}, 0
	for _, node := range d.nodes {
		left[node] = d.free(node)
	}
	var more []int // nodes that have a group more
	for _, node := range nodes {
		if left[node] < p.even {
			return nil, 0
		}
		groups += left[node] / d.group
		left[node] -= p.even
		if left[node] >= d.group {
			more = append(more, node)
		}
	}
	rest := d.count - p.even*len(nodes)
	switch {
	case groups*d.group < d.count:
		return nil, 0
	case rest == 0:
		return p, imbalance(left)
	}
	best := math.MaxFloat64
	for size := len(more); size >= 1; size-- {
		choose(more, size, func(subset []int) {
			after := d.withRemainder(left, subset, rest)
			if after == nil {
				return
			}
			if balance := imbalance(after); balance < best {
				best, p.remainder = balance, slices.Clone(subset)
			}
		})
	}
	if p.remainder == nil {
		return nil, 0
	}
	return p, best
}

// withRemainder returns what nodes have left after the rest has come from some of them, one
// group after the other; nil if these have not enough.
func (d *distribution) withRemainder(left map[int]int, subset []int, rest int) map[int]int {
	after := maps.Clone(left)
	for rest > 0 {
		before := rest
		for _, node := range subset {
			if rest > 0 && after[node] >= d.group {
				after[node] -= d.group
				rest -= d.group
			}
		}
		if rest == before {
			return nil
		}
	}
	return after
}

// imbalance is the standard deviation of what nodes have left, in thousandths: smaller
// differences do not count.
func imbalance(left map[int]int) float64 {
	sum := 0
	for _, n := range left {
		sum += n
	}
	mean, squares := float64(sum)/float64(len(left)), 0.0
	for _, node := range slices.Sorted(maps.Keys(left)) {
		squares += (float64(left[node]) - mean) * (float64(left[node]) - mean)
	}
	return math.Round(math.Sqrt(squares/float64(len(left)))*1000) / 1000
}

// take takes the CPUs of a plan: those of the remainder are packed after the others.
func (d *distribution) take(p *plan) (cpuset.CPUSet, error) {
	taken := cpuset.New()
	pick := func(node, count int) error {
		cpus, err := pack(d.t, d.t.In(d.available.Difference(taken), topology.Node, node), count)
		taken = taken.Union(cpus)
		return err
	}
	for _, node := range p.nodes {
		if err := pick(node, p.even); err != nil {
			return cpuset.New(), err
		}
	}
	for rest := d.count - taken.Size(); rest > 0; {
		for _, node := range p.remainder {
			if rest == 0 || d.t.In(d.available.Difference(taken), topology.Node, node).Size() < d.group {
				continue
			}
			if err := pick(node, d.group); err != nil {
				return cpuset.New(), err
			}
			rest -= d.group
		}
	}
	return taken, nil
}

// choose calls each with every combination of this many of the elements.
func choose(from []int, size int, each func([]int)) {
	chosen := make([]int, 0, size)
	var next func(at int)
	next = func(at int) {
		if len(chosen) == size {
			each(chosen)
			return
		}
		for i := at; i+size-len(chosen) <= len(from); i++ {
			chosen = append(chosen, from[i])
			next(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	next(0)
}
