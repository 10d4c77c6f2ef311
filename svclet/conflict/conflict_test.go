package conflict

import (
	"net/netip"
	"slices"
	"testing"
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
