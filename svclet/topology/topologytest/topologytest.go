// Package topologytest owns simulated machines, and pods for them, for tests.
package topologytest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/svclet/topology"
)

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

// PodWithResources returns a guaranteed pod with resources of its own, of which its containers
// request two CPUs and memory each.
func PodWithResources() *corev1.Pod {
	of := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: corev1.PodSpec{
		Resources:      &corev1.ResourceRequirements{Requests: of("4", "4Mi"), Limits: of("4", "4Mi")},
		InitContainers: []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: of("2", "1Mi"), Limits: of("2", "1Mi")}}},
		Containers:     []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: of("2", "1Mi")}}},
	}}
}
