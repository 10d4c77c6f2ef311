package conflict

import (
	"net/netip"
	"slices"
	"testing"

	"svc.dev/svc/svclet/iptables"
)

func TestFind(t *testing.T) {
	network := func(name, cidr string) Network { return Network{name, netip.MustParsePrefix(cidr)} }
	pods := Pods{Bridge: "svc0", Ranges: []string{"10.88.0.0/24", "fd00:88::/64"}}
	for _, test := range []struct {
		rule    string
		machine Machine
		want    []string
	}{
		{"networks of svc, of other addresses, and default routes", Machine{Networks: []Network{
			network("svc0", "10.88.0.1/24"), network("svc0-vx", "10.88.0.0/32"), network("eth0", "192.168.1.10/24"), network("eth0", "0.0.0.0/0"),
		}}, nil},
		{"an interface with the same addresses, once for its address and its route", Machine{Networks: []Network{
			network("podman0", "10.88.0.1/16"), network("podman0", "10.88.0.0/16"),
		}}, []string{"the range of pods 10.88.0.0/24 overlaps with 10.88.0.0/16 of the interface podman0, which may take their connections: choose another one with --cluster-cidr of svc up, or --pod-cidr, or remove the interface"}},
		{"of IPv6", Machine{Networks: []Network{network("wg0", "fd00:88::1/128")}},
			[]string{"the range of pods fd00:88::/64 overlaps with fd00:88::1/128 of the interface wg0, which may take their connections: choose another one with --cluster-cidr of svc up, or --pod-cidr, or remove the interface"}},
		{"firewalld", Machine{Tables: []string{"svc0", "firewalld"}},
			[]string{"firewalld runs and rejects connections of pods: allow them with 'firewall-cmd --permanent --zone=trusted --add-interface=svc0' and 'firewall-cmd --reload'"}},
		{"ufw", Machine{UFW: true},
			[]string{"ufw is enabled and drops connections of pods to this machine, such as questions about names: allow them with 'ufw allow in on svc0'"}},
		{"Docker, whose rules iptables completes", Machine{Interfaces: []string{"docker0"}, IPTables: true}, nil},
		{"Docker without iptables", Machine{Interfaces: []string{"docker0"}},
			[]string{"Docker drops forwarded connections, also of pods: install iptables, by which svc admits them"}},
		{"another network of pods", Machine{Interfaces: []string{"eth0", "cni0", "flannel.1"}},
			[]string{"another network of pods has interfaces on this machine (cni0, flannel.1): svc leaves them alone and connects its pods to svc0; if no other node runs here any more, remove them, and the rules of its proxy"}},
		{"Calico without an interface of its own", Machine{Interfaces: []string{"eth0", "cali12ab", "cali34cd"}},
			[]string{"another network of pods has interfaces on this machine (cali12ab): svc leaves them alone and connects its pods to svc0; if no other node runs here any more, remove them, and the rules of its proxy"}},
		{"kube-proxy", Machine{Tables: []string{"svc0", "kube-proxy"}},
			[]string{"kube-proxy has rules for services on this machine: stop it and remove them with 'kube-proxy --cleanup', or turn svc's own proxy off with --service-proxy=false"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := Find(test.machine, pods); !slices.Equal(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestRulesThatRefuseWhatPodsSendToTheMachineAreFound(t *testing.T) {
	const (
		four = "rules of iptables refuse connections of pods to this machine, such as questions about names: allow them with 'iptables -I INPUT -i svc0 -j ACCEPT'"
		six  = "rules of ip6tables refuse connections of pods to this machine, such as questions about names: allow them with 'ip6tables -I INPUT -i svc0 -j ACCEPT'"
	)
	pods := Pods{Bridge: "svc0", Ranges: []string{"10.88.0.0/24", "fd00:88::/64"}}
	chain := func(policy string, rules ...string) iptables.Chain {
		return iptables.Chain{Policy: policy, Rules: rules}
	}
	services := []string{"-m state --state RELATED,ESTABLISHED -j ACCEPT", "-p icmp -j ACCEPT", "-i lo -j ACCEPT", "-p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT", "-j REJECT --reject-with icmp-host-prohibited"}
	for _, test := range []struct {
		rule    string
		machine Machine
		want    []string
	}{
		{"none", Machine{Input: chain("ACCEPT"), Input6: chain("ACCEPT")}, nil},
		{"of some connections", Machine{Input: chain("ACCEPT", "-i eth0 -j DROP", "-p tcp -m tcp --dport 25 -j DROP")}, nil},
		{"at the end", Machine{Input: chain("ACCEPT", services...)}, []string{four}},
		{"the policy", Machine{Input: chain("DROP", services[:4]...)}, []string{four}},
		{"of IPv6", Machine{Input: chain("ACCEPT"), Input6: chain("DROP")}, []string{six}},
		{"of both", Machine{Input: chain("DROP"), Input6: chain("ACCEPT", "-j DROP")}, []string{four, six}},
		{"behind the remedy", Machine{Input: chain("DROP", append([]string{"-i svc0 -j ACCEPT"}, services...)...)}, nil},
		{"behind the addresses of pods", Machine{Input: chain("DROP", "-s 10.0.0.0/8 -j ACCEPT", "-j DROP"), Input6: chain("DROP", "-s fd00::/16 -j ACCEPT")}, nil},
		{"behind all connections", Machine{Input: chain("DROP", "-j ACCEPT", "-j DROP")}, nil},
		{"behind a part of the addresses", Machine{Input: chain("DROP", "-s 10.88.0.0/25 -j ACCEPT", "-s 10.89.0.0/24 -j ACCEPT")}, []string{four}},
		{"behind another bridge, and some connections", Machine{Input: chain("DROP", "-i svc01 -j ACCEPT", "-i svc0 -p udp -m udp --dport 53 -j ACCEPT")}, []string{four}},
		{"in front of the remedy", Machine{Input: chain("ACCEPT", "-j DROP", "-i svc0 -j ACCEPT")}, []string{four}},
		{"of ufw", Machine{UFW: true, Input: chain("DROP")}, ufw(Machine{UFW: true}, pods)},
		{"beside firewalld", Machine{Tables: []string{"firewalld"}, Input: chain("DROP")}, firewalld(Machine{Tables: []string{"firewalld"}}, pods)},
	} {
		if got := Find(test.machine, pods); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.rule, got, test.want)
		}
	}
	only4 := Pods{Bridge: "svc0", Ranges: pods.Ranges[:1]}
	if got := Find(Machine{Input6: chain("DROP")}, only4); len(got) > 0 {
		t.Errorf("pods without addresses of IPv6: %q", got)
	}
}
