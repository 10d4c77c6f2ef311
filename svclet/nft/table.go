package nft

import "sigs.k8s.io/knftables"

// Table names a table of the kernel, of a family of [Tables].
type Table struct {
	Family knftables.Family
	Name   string
}
