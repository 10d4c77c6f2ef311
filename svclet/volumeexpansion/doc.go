// Package volumeexpansion owns the node's part of the expansion of volumes: it decides when
// one that has grown is expanded on this node, and writes the state into its claim.
//
// It follows kubelet's NodeExpander, and KEP-1790 for the states in the claim. How a volume is
// expanded is its caller's: a CSI driver is asked, a file system is resized.
package volumeexpansion
