package containerd

import "net/netip"

// rule is an iptables rule.
type rule struct {
	v6           bool
	table, chain string
	args         []string
}

// masqueradeRules returns the rules by which connections of pods that leave the machine
// get its address.
func masqueradeRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			rules = append(rules, rule{prefix.Addr().Is6(), "nat", "POSTROUTING", []string{"--source", prefix.Masked().String(), "!", "--out-interface", bridge, "--jump", "MASQUERADE"}})
		}
	}
	return rules
}

// forwardRules returns the rules by which connections of pods with addresses of the given
// ranges leave the machine and reach it, whatever the forwarding policy is.
func forwardRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue // Validate has refused it
		}
		v6 := prefix.Addr().Is6()
		rules = append(rules,
			rule{v6, "filter", "FORWARD", []string{"--in-interface", bridge, "--jump", "ACCEPT"}},
			rule{v6, "filter", "FORWARD", []string{"--out-interface", bridge, "--jump", "ACCEPT"}},
		)
	}
	return rules
}
