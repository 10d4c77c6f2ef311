package cpus

import (
	"errors"
	"slices"

	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/topology"
)

// errNotEnough is the failure to find as many CPUs as were requested.
var errNotEnough = errors.New("not enough cpus available to satisfy request")

// picker takes CPUs from those that are available, whole parts of the machine first.
type picker struct {
	t         *topology.Topology
	available cpuset.CPUSet
	needed    int
	taken     cpuset.CPUSet
}

// pack takes CPUs so that they are on as few NUMA nodes, sockets and cores as possible,
// and so that whole ones remain for others.
func pack(t *topology.Topology, available cpuset.CPUSet, count int) (cpuset.CPUSet, error) {
	p := &picker{t: t, available: available, needed: count, taken: cpuset.New()}
	if count > available.Size() {
		return cpuset.New(), errNotEnough
	}
	first, second := topology.Node, topology.Socket
	if !p.nodesHoldSockets() {
		first, second = second, first
	}
	for _, take := range []func(){
		func() { p.takeWhole(first) }, func() { p.takeWhole(second) },
		func() { p.takeWhole(topology.Core) }, p.takeThreads,
	} {
		if p.needed > 0 {
			take()
		}
	}
	return p.taken, nil
}

// nodesHoldSockets reports whether a NUMA node has one or more sockets. Otherwise
// sockets have several nodes, and are filled first.
func (p *picker) nodesHoldSockets() bool {
	return p.t.Count(topology.Socket) >= p.t.Count(topology.Node)
}

func (p *picker) take(cpus cpuset.CPUSet) {
	p.taken, p.available = p.taken.Union(cpus), p.available.Difference(cpus)
	p.needed -= cpus.Size()
}

// takeWhole takes parts of which all CPUs are available, as long as they fit into what
// is needed.
func (p *picker) takeWhole(of topology.Part) {
	all := p.t.All()
	for _, part := range p.sorted(of) {
		whole := p.t.In(all, of, part)
		if p.needed >= whole.Size() && whole.IsSubsetOf(p.available) {
			p.take(whole)
		}
	}
}

// takeThreads takes single CPUs.
func (p *picker) takeThreads() {
	for _, cpu := range p.threads() {
		if p.needed == 0 {
			return
		}
		p.take(cpuset.New(cpu))
	}
}

// threads returns the available CPUs, those of the fullest cores first.
func (p *picker) threads() []int {
	var all []int
	for _, core := range p.sorted(topology.Core) {
		all = append(all, p.t.In(p.available, topology.Core, core).List()...)
	}
	return all
}

// sorted returns the parts that have available CPUs: within each larger part those with
// the fewest first.
func (p *picker) sorted(of topology.Part) []int {
	levels := []topology.Part{topology.Node, topology.Socket, topology.Core}
	if !p.nodesHoldSockets() {
		levels[0], levels[1] = levels[1], levels[0]
	}
	groups := []cpuset.CPUSet{p.available}
	for _, level := range levels {
		var parts []int
		var next []cpuset.CPUSet
		for _, group := range groups {
			for _, part := range p.fewestFirst(group, level) {
				parts = append(parts, part)
				next = append(next, p.t.In(group, level, part))
			}
		}
		if level == of {
			return parts
		}
		groups = next
	}
	return nil
}

// fewestFirst returns the parts of a group, those with the fewest available CPUs
// first.
func (p *picker) fewestFirst(group cpuset.CPUSet, of topology.Part) []int {
	parts := p.t.Parts(group, of)
	slices.SortStableFunc(parts, func(a, b int) int {
		return p.t.In(p.available, of, a).Size() - p.t.In(p.available, of, b).Size()
	})
	return parts
}
