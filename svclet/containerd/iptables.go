package containerd

import "net/netip"

// rule is an iptables rule.
type rule struct {
	v6           bool
	table, chain string
	args         []string
}

// iptablesRules returns the rules that pods with addresses of the given ranges need.
func iptablesRules(bridge string, cidrs []string) []rule {
	var rules []rule
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue // Validate has refused it
		}
		v6 := prefix.Addr().Is6()
		rules = append(rules,
			rule{v6, "nat", "POSTROUTING", []string{"--source", prefix.Masked().String(), "!", "--out-interface", bridge, "--jump", "MASQUERADE"}},
			rule{v6, "filter", "FORWARD", []string{"--in-interface", bridge, "--jump", "ACCEPT"}},
			rule{v6, "filter", "FORWARD", []string{"--out-interface", bridge, "--jump", "ACCEPT"}},
		)
	}
	return rules
}
