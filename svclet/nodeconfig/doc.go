// Package nodeconfig owns what the flags of the agent and the machine say about
// the node: its name, its addresses and the resources that it reserves.
package nodeconfig
