//go:build linux

package conflict

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"svc.dev/svc/svclet/netnstest"
)

// leftBehind is what firewalld and ufw have in the kernel, as far as it filters connections of pods.
const leftBehind = `
table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		iifname "lo" accept
		reject with icmpx admin-prohibited
	}
}
table ip filter {
	chain DOCKER-USER { return; }
	chain ufw-user-forward { }
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
		jump DOCKER-USER
		jump ufw-user-forward
	}
}
`

// The namespace has what the programs leave; svc says so, and changes nothing of it.
func TestWhatOtherProgramsHaveInTheKernelIsFoundAndKept(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		nft := func(stdin string, args ...string) string {
			command := exec.CommandContext(t.Context(), "nft", args...)
			command.Stdin = strings.NewReader(stdin)
			out, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("nft %v: %v: %s", args, err, out)
			}
			return string(out)
		}
		nft(leftBehind, "-f", "-")
		for _, name := range []string{"docker0", "cni0", "flannel.1"} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				t.Error(err)
			}
		}
		before := nft("", "list", "ruleset")
		m, err := Read(t.Context(), "", false)
		if err != nil {
			t.Error(err)
		}
		m.UFW = false // of this machine
		found := Find(m, Pods{Bridge: "svc0", Ranges: []string{"10.88.0.0/24"}})
		for _, want := range []string{"firewalld runs and rejects", "Docker drops forwarded connections", "another network of pods has interfaces on this machine (cni0, flannel.1)"} {
			if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) }) {
				t.Errorf("no line about %q in %q", want, found)
			}
		}
		if len(found) != 3 {
			t.Errorf("%d lines, want one about each: %q", len(found), found)
		}
		if after := nft("", "list", "ruleset"); after != before {
			t.Errorf("the rules are now\n%s", after)
		}
	})
}

func TestTheRemedyForRulesOfIPTablesWorksInTheKernel(t *testing.T) {
	program, err := exec.LookPath("iptables")
	if err != nil {
		t.Skip(err)
	}
	netnstest.Run(t, "", func(t *testing.T) {
		find := func() []string {
			m, err := Read(t.Context(), program, true)
			if err != nil {
				t.Error(err)
			}
			m.UFW = false // of this machine
			return Find(m, Pods{Bridge: "svc0", Ranges: []string{"10.88.0.0/24", "fd00:88::/64"}})
		}
		if found := find(); len(found) > 0 {
			t.Errorf("without rules: %q", found)
		}
		shell := func(command string) {
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil { //nolint:gosec // It is a remedy.
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
		shell("iptables -A INPUT -i lo -j ACCEPT && iptables -A INPUT -j REJECT --reject-with icmp-host-prohibited && ip6tables -P INPUT DROP")
		found := find()
		if len(found) != 2 {
			t.Errorf("want one line for each family: %q", found)
		}
		for _, line := range found {
			_, remedy, _ := strings.Cut(line, "'")
			shell(strings.TrimSuffix(remedy, "'"))
		}
		if found := find(); len(found) > 0 {
			t.Errorf("after the remedies: %q", found)
		}
	})
}
