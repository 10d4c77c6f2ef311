// Package networkpolicy owns the enforcement of network policies on a node: it keeps
// nftables rules by which pods accept and open only the connections that policies allow.
// Package ruleset decides what the rules are.
package networkpolicy
