// Package proxy owns the node's service proxy: it keeps nftables rules by which
// connections to the addresses of services reach their endpoints. Package ruleset
// decides what the rules are.
package proxy
