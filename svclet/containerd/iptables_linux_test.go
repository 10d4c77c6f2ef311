package containerd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/svclet/iptables"
	"svc.dev/svc/svclet/netnstest"
)

// withIPTables runs a test with the real iptables in a network namespace of its own. run runs
// a command line.
func withIPTables(t *testing.T, test func(program string, run func(line string))) {
	t.Helper()
	program, err := exec.LookPath("iptables")
	if err != nil {
		t.Skip(err)
	}
	netnstest.Run(t, "", func(t *testing.T) {
		test(program, func(line string) {
			args := strings.Fields(line)
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // The tests name the programs.
				t.Errorf("%s: %v: %s", line, err, out)
			}
		})
	})
}

// skipUnlessOfNft skips a test of rules that nft changes if there is no nft, or if iptables is
// the one that does not use it.
func skipUnlessOfNft(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	version, err := exec.CommandContext(t.Context(), "iptables", "--version").Output()
	if err != nil || !strings.Contains(string(version), "nf_tables") {
		t.Skipf("iptables is not that of nftables: %v: %s", err, version)
	}
}

// expectChain checks the rules of a chain of iptables or ip6tables.
func expectChain(t *testing.T, when, program string, v6 bool, table, chain string, want ...string) {
	t.Helper()
	got, err := iptables.Read(t.Context(), iptables.Program(program, v6), table, chain)
	if err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if !slices.Equal(got.Rules, want) {
		t.Errorf("%s: %s has %q, want %q", when, chain, got.Rules, want)
	}
}

func TestConnectionsOfPodsAreAdmittedInFrontOfRulesThatRefuseAll(t *testing.T) {
	withIPTables(t, func(program string, run func(string)) {
		ranges := []string{"10.88.0.0/24", "fd00:88::/64"}
		rules := append(forwardRules("svc0", ranges), masqueradeRules("svc0", ranges)...)
		add := func() {
			t.Helper()
			if _, err := addRules(t.Context(), program, rules); err != nil {
				t.Error(err)
			}
		}
		const in, out, reject, reject6 = "-i svc0 -j ACCEPT", "-o svc0 -j ACCEPT", "-j REJECT --reject-with icmp-host-prohibited", "-j REJECT --reject-with icmp6-adm-prohibited"
		forward := func(when string, v6 bool, want ...string) {
			t.Helper()
			expectChain(t, when, program, v6, "filter", "FORWARD", want...)
		}
		run("iptables -A FORWARD -i eth0 -j DROP")
		for range 2 {
			add()
			forward("at the end", false, "-i eth0 -j DROP", in, out)
			forward("at the end", true, in, out)
			expectChain(t, "at the end", program, false, "nat", "POSTROUTING", "-s 10.88.0.0/24 ! -o svc0 -j MASQUERADE")
			expectChain(t, "at the end", program, true, "nat", "POSTROUTING", "-s fd00:88::/64 ! -o svc0 -j MASQUERADE")
		}
		run("iptables -I FORWARD 2 " + reject)
		run("iptables -A FORWARD -i eth1 -j ACCEPT")
		run("ip6tables -I FORWARD 2 " + reject6)
		for range 2 {
			add()
			forward("in front", false, "-i eth0 -j DROP", in, out, reject, "-i eth1 -j ACCEPT")
			forward("in front", true, in, out, reject6)
		}
		run("iptables -F FORWARD")
		run("iptables -A FORWARD -j DROP")
		add()
		forward("as the only ones", false, in, out, "-j DROP")
		run("iptables -A FORWARD " + in)
		if err := removeRules(t.Context(), program, rules); err != nil {
			t.Error(err)
		}
		forward("after their removal", false, "-j DROP")
		forward("after their removal", true, reject6)
	})
}

func TestRulesAreAddedToAChainThatOnlyNftCanList(t *testing.T) {
	skipUnlessOfNft(t)
	withIPTables(t, func(program string, run func(string)) {
		run("iptables -P FORWARD DROP")
		run("nft add rule ip filter FORWARD ct state vmap { established : accept }")
		rules := forwardRules("svc0", []string{"10.88.0.0/24"})
		for range 2 {
			if _, err := addRules(t.Context(), program, rules); err != nil {
				t.Error(err)
			}
		}
		listed, err := exec.CommandContext(t.Context(), "nft", "list", "chain", "ip", "filter", "FORWARD").Output()
		if err != nil || strings.Count(string(listed), `ifname "svc0"`) != len(rules) {
			t.Errorf("%v: %s", err, listed)
		}
		if err := removeRules(t.Context(), program, rules); err != nil {
			t.Error(err)
		}
		listed, err = exec.CommandContext(t.Context(), "nft", "list", "chain", "ip", "filter", "FORWARD").Output()
		if err != nil || strings.Contains(string(listed), "svc0") {
			t.Errorf("after their removal: %v: %s", err, listed)
		}
	})
}

func TestRulesThatOtherProgramsRemoveAreAddedAgain(t *testing.T) {
	skipUnlessOfNft(t)
	withIPTables(t, func(program string, run func(string)) {
		r := &Runtime{settings: settings{Config: Config{Dir: t.TempDir(), PodCIDRs: []string{"10.88.0.0/24", "fd00:88::/64"}, Programs: Programs{IPTables: program}}}}
		const in, out, masquerade4, masquerade6 = "-i svc0 -j ACCEPT", "-o svc0 -j ACCEPT", "-s 10.88.0.0/24 ! -o svc0 -j MASQUERADE", "-s fd00:88::/64 ! -o svc0 -j MASQUERADE"
		masquerades := true
		ensure := func(when string, wantAdded bool) {
			t.Helper()
			added, err := r.EnsureRules(t.Context())
			if err != nil || added != wantAdded {
				t.Errorf("%s: rules are added: %t, %v", when, added, err)
			}
			for v6, masquerade := range map[bool]string{false: masquerade4, true: masquerade6} {
				expectChain(t, when, program, v6, "filter", "FORWARD", in, out)
				if masquerades {
					expectChain(t, when, program, v6, "nat", "POSTROUTING", masquerade)
				} else {
					expectChain(t, when, program, v6, "nat", "POSTROUTING")
				}
			}
		}
		ensure("without any", true)
		for _, flush := range []string{"iptables -F FORWARD", "ip6tables -F FORWARD", "iptables -t nat -F", "iptables -D FORWARD " + out, "nft flush ruleset"} {
			run(flush)
			ensure("after "+flush, true)
			ensure("twice after "+flush, false)
		}
		masquerades = false
		if err := r.Masquerade(t.Context(), false); err != nil {
			t.Error(err)
		}
		ensure("with another part that gives the node's address", false)
		run("nft flush ruleset")
		ensure("all of them, with that part", true)
	})
}

// A program that is run each minute is to be run no more often than needed.
func TestAChainThatHasAllRulesIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	program, calls := filepath.Join(dir, "iptables"), filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$@\" >> " + calls + "\nprintf '%s\\n' '-P FORWARD DROP'"
	config := Config{Dir: dir, PodNetwork: true, ServiceProxy: true, PodCIDRs: []string{"10.88.0.0/24"}, Programs: Programs{IPTables: program}}
	for _, r := range (&Runtime{}).rules(config, config.PodCIDRs) {
		script += " '-A FORWARD " + strings.Join(r.args, " ") + "'"
	}
	if err := os.WriteFile(program, []byte(script+"\n"), 0o700); err != nil { //nolint:gosec // It is run.
		t.Fatal(err)
	}
	if added, err := (&Runtime{settings: settings{Config: config}}).EnsureRules(t.Context()); added || err != nil {
		t.Errorf("rules are added: %t, %v", added, err)
	}
	if got, err := os.ReadFile(calls); err != nil || string(got) != "--wait 5 --table filter --list-rules\n" {
		t.Errorf("called with\n%s%v", got, err)
	}
}

// The rules of the administrator stay, which may be the same but for the comment.
func TestRulesOfServicesAreAddedUnlessThereAreSuchAndRemovedAlone(t *testing.T) {
	withIPTables(t, func(program string, run func(string)) {
		rules := serviceRules("svc0", []string{"10.88.0.0/24", "fd00:88::/64"})
		const marked, answers, reject = "-m mark --mark 0x4000/0x4000 -j ACCEPT", "-m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-j REJECT --reject-with icmp-port-unreachable"
		run("iptables -A FORWARD " + marked)
		run("iptables -A FORWARD " + reject)
		for _, want := range []bool{true, false} {
			if added, err := addRules(t.Context(), program, rules); added != want || err != nil {
				t.Errorf("rules are added: %t, %v", added, err)
			}
			expectChain(t, "after they are added", program, false, "filter", "FORWARD", marked, answers, reject)
			expectChain(t, "after they are added", program, true, "filter", "FORWARD", marked, answers)
		}
		if err := removeRules(t.Context(), program, rules); err != nil {
			t.Error(err)
		}
		expectChain(t, "after their removal", program, false, "filter", "FORWARD", marked, reject)
		expectChain(t, "after their removal", program, true, "filter", "FORWARD")
	})
}

// A node may get ranges of fewer families, whose rules nothing would remove any more: a reset
// removes those of the ranges that it finds.
func TestRulesOfFormerRangesAreRemoved(t *testing.T) {
	withIPTables(t, func(program string, run func(string)) {
		const reject, reject6 = "-j REJECT --reject-with icmp-port-unreachable", "-j REJECT --reject-with icmp6-port-unreachable"
		run("iptables -A FORWARD " + reject)
		run("ip6tables -A FORWARD " + reject6)
		ours := []string{"-i svc0 -j ACCEPT", "-o svc0 -j ACCEPT", "-m mark --mark 0x4000/0x4000 -j ACCEPT", "-m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}
		r := &Runtime{settings: settings{Config: Config{Dir: t.TempDir(), ServiceProxy: true, Programs: Programs{IPTables: program}}}}
		if err := os.MkdirAll(r.settings.cniDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		change := func(ranges ...string) {
			t.Helper()
			if _, err := r.SetPodCIDRs(t.Context(), ranges); err != nil {
				t.Error(err)
			}
		}
		change("10.88.0.0/24", "fd00:88::/64")
		expectChain(t, "with both families", program, false, "filter", "FORWARD", append(slices.Clone(ours), reject)...)
		expectChain(t, "with both families", program, true, "filter", "FORWARD", append(slices.Clone(ours), reject6)...)
		change("10.88.1.0/24")
		expectChain(t, "with IPv4 only", program, false, "filter", "FORWARD", append(slices.Clone(ours), reject)...)
		expectChain(t, "with IPv4 only", program, true, "filter", "FORWARD", reject6)
		expectChain(t, "with IPv4 only", program, true, "nat", "POSTROUTING")
	})
}

func TestNoRulesAreAddedWithoutThePermissionAndWithoutIPTables(t *testing.T) {
	for _, s := range []settings{
		{Config: Config{Dir: t.TempDir()}},
		{Config: Config{Dir: t.TempDir(), Programs: Programs{IPTables: "/none"}}, hostNetworkOnly: true},
	} {
		if added, err := (&Runtime{settings: s}).EnsureRules(t.Context()); added || err != nil {
			t.Error(added, err)
		}
	}
	r := &Runtime{settings: settings{Config: Config{Dir: t.TempDir(), Programs: Programs{IPTables: "/none/iptables"}}}}
	if added, err := r.EnsureRules(t.Context()); added || err == nil || !strings.HasPrefix(err.Error(), "/none/iptables --wait 5 --table filter --append FORWARD -i svc0 -j ACCEPT: ") {
		t.Errorf("a program that cannot be run: %t, %v", added, err)
	}
}

// nftRuleset lists all tables of nftables.
func nftRuleset(t *testing.T) string {
	t.Helper()
	listed, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
	if err != nil {
		t.Error(err)
	}
	return string(listed)
}

// A reset leaves the tables of others, and of those that iptables has made for rules of pods the
// ones that have something else by then.
func TestTablesThatIptablesHasMadeForPodsAreRemovedWithTheirRules(t *testing.T) {
	skipUnlessOfNft(t)
	for _, test := range []struct {
		before, between string
		left            []string // words of the rule set afterwards
	}{
		{"", "", nil},
		{"iptables -A FORWARD -i eth0 -j DROP", "", []string{"table ip filter", "eth0"}},
		{"nft add table ip6 filter", "", []string{"table ip6 filter"}},
		{"", "iptables -P FORWARD DROP", []string{"table ip filter", "policy drop"}},
		{"", "iptables -t nat -N MINE", []string{"table ip nat", "chain MINE"}},
		{"", "nft add set ip nat mine { type ipv4_addr; }", []string{"table ip nat", "set mine"}},
		{"", "ip6tables -A INPUT -i eth0 -j DROP", []string{"table ip6 filter", "eth0"}},
	} {
		withIPTables(t, func(program string, run func(string)) {
			config := Config{Dir: t.TempDir(), PodCIDRs: []string{"10.88.0.0/24", "fd00:88::/64"}, Programs: Programs{IPTables: program}}
			if test.before != "" {
				run(test.before)
			}
			rules := slices.Concat(forwardRules("svc0", config.PodCIDRs), masqueradeRules("svc0", config.PodCIDRs))
			for range 2 { // as after a restart
				if err := config.recordTables(rules); err != nil {
					t.Error(err)
				}
				if _, err := addRules(t.Context(), program, rules); err != nil {
					t.Error(err)
				}
			}
			if test.between != "" {
				run(test.between)
			}
			if err := errors.Join(removeRules(t.Context(), program, rules), config.removeTables()); err != nil {
				t.Error(err)
			}
			got := nftRuleset(t)
			for _, word := range test.left {
				if !strings.Contains(got, word) {
					t.Errorf("after %q and %q, %q is missing in\n%s", test.before, test.between, word, got)
				}
			}
			if want := min(len(test.left), 1); strings.Count(got, "table ") != want {
				t.Errorf("after %q and %q, %d tables are expected in\n%s", test.before, test.between, want, got)
			}
		})
	}
}

// Connections of pods go on while the ranges change.
func TestRulesThatBothRangesHaveStayWhenRangesChange(t *testing.T) {
	config := Config{Bridge: "svc0", ServiceProxy: true}
	before, after := []string{"10.88.0.0/24", "fd00:88::/64"}, []string{"10.88.7.0/24"}
	r := &Runtime{}
	text := func(rules []rule) (all []string) {
		for _, r := range rules {
			all = append(all, strings.Join(append([]string{map[bool]string{true: "ip6tables", false: "iptables"}[r.v6], r.chain}, r.args...), " "))
		}
		return all
	}
	got := text(former(config, before, after, r.rules(config, after)))
	want := text(slices.Concat(forwardRules("svc0", before[1:]), masqueradeRules("svc0", before), serviceRules("svc0", before[1:])))
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q are removed, want %q", got, want)
	}
	if got := former(config, after, after, r.rules(config, after)); len(got) > 0 {
		t.Errorf("%q are removed without a change", text(got))
	}
	config.ServiceProxy = false
	if got := text(former(config, after, after, r.rules(config, after))); !slices.Equal(got, text(serviceRules("svc0", after))) {
		t.Errorf("without the proxy %q are removed", got)
	}
}
