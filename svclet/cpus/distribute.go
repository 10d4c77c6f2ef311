package cpus

import (
	"math"

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

// share is how many CPUs come from a node.
type share struct{ node, count int }

func (d *distribution) free(node int) int { return d.t.In(d.available, topology.Node, node).Size() }

// best returns the plan for this many nodes that leaves the nodes most evenly used, nil
// if there is none.
func (d *distribution) best(size int) []share {
	var best []share
	balance := math.MaxFloat64
	choose(d.nodes, size, func(combination []int) {
		plan := d.plan(combination)
		if plan == nil {
			return
		}
		if left := d.imbalance(plan); left < balance {
			best, balance = plan, left
		}
	})
	return best
}

// plan returns the shares of these nodes: equal ones, and a group more for those with
// the most free CPUs if there is a remainder. It is nil if they lack CPUs.
func (d *distribution) plan(nodes []int) []share {
	even := d.count / len(nodes) / d.group * d.group
	rest := d.count - even*len(nodes)
	plan := make([]share, len(nodes))
	for i, node := range nodes {
		if d.free(node) < even {
			return nil
		}
		plan[i] = share{node, even}
	}
	for rest > 0 {
		most := -1
		for i := range plan {
			left := d.free(plan[i].node) - plan[i].count
			if left >= d.group && (most < 0 || left > d.free(plan[most].node)-plan[most].count) {
				most = i
			}
		}
		if most < 0 {
			return nil
		}
		plan[most].count += d.group
		rest -= d.group
	}
	for _, s := range plan {
		if s.count == 0 {
			return nil // fewer nodes suffice
		}
	}
	return plan
}

// imbalance is the standard deviation of what all nodes have left after a plan.
func (d *distribution) imbalance(plan []share) float64 {
	left := make([]float64, len(d.nodes))
	sum := 0.0
	for i, node := range d.nodes {
		left[i] = float64(d.free(node))
		for _, s := range plan {
			if s.node == node {
				left[i] -= float64(s.count)
			}
		}
		sum += left[i]
	}
	mean, squares := sum/float64(len(left)), 0.0
	for _, n := range left {
		squares += (n - mean) * (n - mean)
	}
	return math.Sqrt(squares / float64(len(left)))
}

func (d *distribution) take(plan []share) (cpuset.CPUSet, error) {
	taken := cpuset.New()
	for _, s := range plan {
		cpus, err := pack(d.t, d.t.In(d.available, topology.Node, s.node), s.count)
		if err != nil {
			return cpuset.New(), err
		}
		taken = taken.Union(cpus)
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
