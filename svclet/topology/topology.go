// Package topology owns the machine's topology (cores, sockets, NUMA nodes) and the
// decision on which NUMA nodes a container's resources come from.
package topology

import (
	"slices"

	"k8s.io/utils/cpuset"
)

// CPU is where a logical CPU is. A core is named by its lowest CPU.
type CPU struct {
	Core, Socket, Node int
}

// Memory is the memory of a NUMA node, in bytes.
type Memory struct {
	Total int64
	// HugePages are the sizes of all huge pages of a size, by that size.
	HugePages map[int64]int64
}

// Topology is the topology of a machine.
type Topology struct {
	CPUs map[int]CPU
	// Memory is that of the NUMA nodes: all nodes have an entry.
	Memory map[int]Memory
	// Distance is the distance of two NUMA nodes, as the firmware reports it; nil if it
	// does not.
	Distance map[int][]int
}

// Part is a kind of part of the machine, by which CPUs are grouped.
type Part int

// The kinds of parts.
const (
	Core Part = iota
	Socket
	Node
)

// part returns the number of the part that a CPU is in.
func (c CPU) part(of Part) int {
	switch of {
	case Core:
		return c.Core
	case Socket:
		return c.Socket
	default:
		return c.Node
	}
}

// All returns all CPUs.
func (t *Topology) All() cpuset.CPUSet {
	all := make([]int, 0, len(t.CPUs))
	for cpu := range t.CPUs {
		all = append(all, cpu)
	}
	return cpuset.New(all...)
}

// Nodes returns the NUMA nodes, in ascending order.
func (t *Topology) Nodes() []int {
	nodes := make([]int, 0, len(t.Memory))
	for node := range t.Memory {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return nodes
}

// Count returns how many cores, sockets or nodes have CPUs.
func (t *Topology) Count(of Part) int { return len(t.Parts(t.All(), of)) }

// ThreadsPerCore returns how many logical CPUs a core has.
func (t *Topology) ThreadsPerCore() int {
	if cores := t.Count(Core); cores > 0 {
		return len(t.CPUs) / cores
	}
	return 1
}

// Parts returns the cores, sockets or nodes that have some of the CPUs, in ascending
// order.
func (t *Topology) Parts(cpus cpuset.CPUSet, of Part) []int {
	var parts []int
	for _, cpu := range cpus.UnsortedList() {
		parts = append(parts, t.CPUs[cpu].part(of))
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// In returns those of the CPUs that are in one of the parts.
func (t *Topology) In(cpus cpuset.CPUSet, of Part, parts ...int) cpuset.CPUSet {
	var in []int
	for _, cpu := range cpus.UnsortedList() {
		if slices.Contains(parts, t.CPUs[cpu].part(of)) {
			in = append(in, cpu)
		}
	}
	return cpuset.New(in...)
}
