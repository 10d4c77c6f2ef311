package iptables

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheFirstRuleThatRefusesEveryPacketIsFound(t *testing.T) {
	others := map[string][]string{
		"ufw-before-forward": {"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-j ufw-user-forward"},
		"ufw-reject-forward": {"-j REJECT --reject-with icmp-port-unreachable"},
		"outer":              {"-i lo -j ACCEPT", "-j inner"},
		"inner":              {"-p tcp -j RETURN", "-j DROP"},
		"returns":            {"-j RETURN", "-j DROP"},
		"accepts":            {"-j ACCEPT", "-j DROP"},
	}
	for _, test := range []struct {
		rule  string
		rules []string
		want  int
	}{
		{"none", nil, -1},
		{"of some packets", []string{"-i eth0 -j DROP", "-p tcp -m tcp --dport 25 -j REJECT --reject-with icmp-port-unreachable", "! -i svc0 -j DROP"}, -1},
		{"that accepts, or passes on", []string{"-j ACCEPT", "-j DOCKER-USER", "-j DROPPED", "-g REJECT"}, -1},
		{"that rejects", []string{"-i lo -j ACCEPT", "-j REJECT --reject-with icmp-host-prohibited", "-j DROP"}, 1},
		{"that drops", []string{"-j DROP"}, 0},
		{"of another chain", []string{"-j ufw-before-forward", "-j ufw-reject-forward", "-j ufw-track-forward"}, 1},
		{"of a chain of another chain", []string{"-i eth0 -j outer", "-j outer"}, 1},
		{"that another chain does not reach", []string{"-j returns", "-j accepts", "-j unknown"}, -1},
	} {
		if got := (Chain{Rules: test.rules, Others: others}).Refusal(); got != test.want {
			t.Errorf("%s: %d, want %d", test.rule, got, test.want)
		}
	}
}

func TestAChainIsReadByItselfIfTheTableCannotBeListed(t *testing.T) {
	program := filepath.Join(t.TempDir(), "iptables")
	content := `[ "$#" = 6 ] || { echo 'the table is incompatible' >&2; exit 1; }; printf '%s\n' '-P FORWARD ACCEPT' '-A FORWARD -j last'`
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+content+"\n"), 0o700); err != nil { //nolint:gosec // It is run.
		t.Fatal(err)
	}
	c, err := Read(t.Context(), program, "filter", "FORWARD")
	if err != nil || c.Policy != "ACCEPT" || !slices.Equal(c.Rules, []string{"-j last"}) || c.Refusal() != -1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestAChainIsReadByTheProgramOfItsFamilyWithoutComments(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"iptables":  `printf '%s\n' '-P FORWARD DROP' '-A FORWARD -i eth0 -j ACCEPT' '-A FORWARD -i svc0 -m comment --comment "of \"pods\", then -j DROP" -j ACCEPT' '-A FORWARD -m comment --comment others -j DROP' '-N last' '-A last -j REJECT'; echo '# a warning' >&2`,
		"ip6tables": `echo "$@: in use" >&2; echo 'more of it' >&2; exit 4`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+content+"\n"), 0o700); err != nil { //nolint:gosec // It is run.
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "iptables")
	c, err := Read(t.Context(), Program(program, false), "filter", "FORWARD")
	if err != nil || c.Policy != "DROP" || !slices.Equal(c.Rules, []string{"-i eth0 -j ACCEPT", "-i svc0 -j ACCEPT", "-j DROP"}) || len(c.Others) != 1 || !slices.Equal(c.Others["last"], []string{"-j REJECT"}) {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = Read(t.Context(), Program(program, true), "filter", "FORWARD")
	if want := program[:len(program)-len("iptables")] + "ip6tables --wait 5 --table filter --list-rules FORWARD: exit status 4: --wait 5 --table filter --list-rules FORWARD: in use"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, program); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("after the end: %v", err)
	}
}
