// Package dns owns the DNS server of a node: it answers questions about the cluster's
// domain from the node's copy of services, and forwards others to the resolvers of the
// machine. Package records decides what the answers are.
package dns
