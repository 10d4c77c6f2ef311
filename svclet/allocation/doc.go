// Package allocation owns what the node allocates to single containers: CPUs, memory,
// devices and, through the topology policy, the NUMA nodes that these come from.
package allocation
