package conflict

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"svc.dev/svc/svclet/iptables"
)

// Machine is what the machine has.
type Machine struct {
	// Networks are the addresses with their networks, and the routes but for default ones.
	Networks []Network
	// Interfaces are the names of the network interfaces.
	Interfaces []string
	// Tables are the names of nftables' tables.
	Tables []string
	// UFW is whether ufw is enabled.
	UFW bool
	// IPTables is whether the program exists, by which svc admits the connections of pods.
	IPTables bool
	// Input and Input6 are the chains INPUT of iptables and ip6tables.
	Input, Input6 iptables.Chain
}

// Network is a range of addresses that an interface leads to.
type Network struct {
	Interface string
	Range     netip.Prefix
}

// Pods is the network of this node's pods.
type Pods struct {
	// Bridge is their interface; others whose names begin with it and a dash are svc's, too.
	Bridge string
	Ranges []string
}

// Find returns a sentence for each conflict, which names the remedy.
func Find(m Machine, p Pods) []string {
	var all []string
	for _, check := range []func(Machine, Pods) []string{addresses, firewalld, ufw, input, docker, otherNetwork, kubeProxy} {
		all = append(all, check(m, p)...)
	}
	return all
}

// addresses finds other networks with addresses of pods.
func addresses(m Machine, p Pods) []string {
	var all []string
	for _, text := range p.Ranges {
		pods, err := netip.ParsePrefix(text)
		if err != nil {
			continue // the configuration has been validated
		}
		for _, n := range m.Networks {
			if n.Interface == p.Bridge || strings.HasPrefix(n.Interface, p.Bridge+"-") || n.Range.Bits() == 0 || !n.Range.Overlaps(pods) {
				continue
			}
			sentence := fmt.Sprintf("the range of pods %s overlaps with %s of the interface %s, which may take their connections: choose another one with --cluster-cidr of svc up, or --pod-cidr, or remove the interface", text, n.Range.Masked(), n.Interface)
			if !slices.Contains(all, sentence) {
				all = append(all, sentence)
			}
		}
	}
	return all
}

// firewalld finds a firewall whose rules reject what others accept.
func firewalld(m Machine, p Pods) []string {
	if !slices.Contains(m.Tables, "firewalld") {
		return nil
	}
	return []string{fmt.Sprintf("firewalld runs and rejects connections of pods: allow them with 'firewall-cmd --permanent --zone=trusted --add-interface=%s' and 'firewall-cmd --reload'", p.Bridge)}
}

// ufw finds a firewall that drops connections to this machine.
func ufw(m Machine, p Pods) []string {
	if !m.UFW {
		return nil
	}
	return []string{fmt.Sprintf("ufw is enabled and drops connections of pods to this machine, such as questions about names: allow them with 'ufw allow in on %s'", p.Bridge)}
}

// input finds rules of iptables that refuse what pods send to this machine. Those of firewalld
// and ufw have lines of their own.
func input(m Machine, p Pods) []string {
	if m.UFW || slices.Contains(m.Tables, "firewalld") {
		return nil
	}
	var all []string
	for _, of := range []struct {
		program string
		chain   iptables.Chain
		v6      bool
	}{{"iptables", m.Input, false}, {"ip6tables", m.Input6, true}} {
		if slices.ContainsFunc(p.Ranges, func(text string) bool {
			pods, err := netip.ParsePrefix(text)
			return err == nil && pods.Addr().Is6() == of.v6 && refuses(of.chain, p.Bridge, pods)
		}) {
			all = append(all, fmt.Sprintf("rules of %[1]s refuse connections of pods to this machine, such as questions about names: allow them with '%[1]s -I INPUT -i %[2]s -j ACCEPT'", of.program, p.Bridge))
		}
	}
	return all
}

// refuses reports whether a chain refuses some packets of pods. Of the rules that accept packets, it
// considers those that accept them from the bridge, from a range, or all.
func refuses(chain iptables.Chain, bridge string, pods netip.Prefix) bool {
	rules, at := chain.Rules, chain.Refusal()
	if at < 0 && chain.Policy != "DROP" {
		return false
	}
	if at >= 0 {
		rules = rules[:at]
	}
	return !slices.ContainsFunc(rules, func(rule string) bool {
		if rule == "-j ACCEPT" || rule == "-i "+bridge+" -j ACCEPT" {
			return true
		}
		text, accepts := strings.CutSuffix(strings.TrimPrefix(rule, "-s "), " -j ACCEPT")
		source, err := netip.ParsePrefix(text)
		return accepts && err == nil && source.Bits() <= pods.Bits() && source.Overlaps(pods)
	})
}

// docker finds a Docker whose policy drops forwarded connections. Rules of iptables by
// which svc admits those of pods come first.
func docker(m Machine, _ Pods) []string {
	if m.IPTables || !slices.Contains(m.Interfaces, "docker0") {
		return nil
	}
	return []string{"Docker drops forwarded connections, also of pods: install iptables, by which svc admits them"}
}

// others are the interfaces of well-known networks of pods.
var others = []string{"cni0", "flannel.1", "cilium_host", "vxlan.calico", "weave", "kube-bridge", "kube-ipvs0", "antrea-gw0", "ovn-k8s-mp0"}

// otherNetwork finds a network of pods that another node has made.
func otherNetwork(m Machine, p Pods) []string {
	var found []string
	for _, name := range others {
		if slices.Contains(m.Interfaces, name) {
			found = append(found, name)
		}
	}
	// Calico has an interface for each pod, and one of its own only in some of its modes.
	if at := slices.IndexFunc(m.Interfaces, func(name string) bool { return strings.HasPrefix(name, "cali") }); at >= 0 {
		found = append(found, m.Interfaces[at])
	}
	if len(found) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("another network of pods has interfaces on this machine (%s): svc leaves them alone and connects its pods to %s; if no other node runs here any more, remove them, and the rules of its proxy", strings.Join(found, ", "), p.Bridge)}
}

// kubeProxy finds a kube-proxy in its nftables mode, which serves the same addresses.
func kubeProxy(m Machine, _ Pods) []string {
	if !slices.Contains(m.Tables, "kube-proxy") {
		return nil
	}
	return []string{"kube-proxy has rules for services on this machine: stop it and remove them with 'kube-proxy --cleanup', or turn svc's own proxy off with --service-proxy=false"}
}
