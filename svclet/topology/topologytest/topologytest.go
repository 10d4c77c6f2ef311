// Package topologytest owns simulated machines for tests.
package topologytest

import "svc.dev/svc/svclet/topology"

// Regular returns a machine whose parts are all alike: sockets with NUMA nodes, with
// cores, with threads. Its CPUs are numbered as Linux does: first those of the first
// thread of all cores. Memory is that of each node in bytes.
func Regular(sockets, nodesPerSocket, coresPerNode, threads int, memory int64) *topology.Topology {
	t := &topology.Topology{CPUs: map[int]topology.CPU{}, Memory: map[int]topology.Memory{}, Distance: map[int][]int{}}
	nodes := sockets * nodesPerSocket
	cores := nodes * coresPerNode
	for core := range cores {
		node := core / coresPerNode
		for thread := range threads {
			t.CPUs[core+thread*cores] = topology.CPU{Core: core, Socket: node / nodesPerSocket, Node: node}
		}
	}
	for node := range nodes {
		t.Memory[node] = topology.Memory{Total: memory, HugePages: map[int64]int64{}}
		for other := range nodes {
			t.Distance[node] = append(t.Distance[node], distance(node, other, nodesPerSocket))
		}
	}
	return t
}

// distance is 10 within a node, 12 within a socket and 32 between sockets.
func distance(a, b, nodesPerSocket int) int {
	switch {
	case a == b:
		return 10
	case a/nodesPerSocket == b/nodesPerSocket:
		return 12
	default:
		return 32
	}
}
