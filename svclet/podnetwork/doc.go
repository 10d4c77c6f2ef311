// Package podnetwork owns how the pods of this node and those of other nodes reach each
// other by their own addresses: routes, the ends of VXLAN tunnels, and the nftables rules
// by which only connections that leave the cluster's pods get the node's address. Package
// plan decides what a node must have.
package podnetwork
