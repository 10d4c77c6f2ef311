//go:build linux

package ruleset

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// sourceRanges is the chain of packets to addresses of load balancers with source ranges. Of each
// length of a prefix there is a set of the ranges with the keys that they are of, and a rule that looks
// up as much of the source's address. A set of intervals would need no rule for each length, but the
// kernel copies all of it for each change.
const sourceRanges = "source-ranges"

// allowSources returns the rules that drop what no range allows.
func (t Table) allowSources(lengths []choice) []string {
	var rules []string
	for _, c := range lengths {
		rules = append(rules, fmt.Sprintf("%s . %s @%s return", t.source(c.size), t.key(guardedIPs), c.set()))
	}
	return append(rules, "drop")
}

// source returns the expression for the address of a packet's source in a range whose prefix has a
// length in bits.
func (t Table) source(length int) string {
	bits := 32
	if t.Family == corev1.IPv6Protocol {
		bits = 128
	}
	address := Protocol(t.Family) + " saddr"
	if length == bits {
		return address
	}
	mask := make([]byte, bits/8)
	for n := range length {
		mask[n/8] |= 0x80 >> (n % 8)
	}
	masked, _ := netip.AddrFromSlice(mask)
	return fmt.Sprintf("%s & %s", address, masked)
}
