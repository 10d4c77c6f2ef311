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
	} {
		if got := (Chain{Rules: test.rules}).Refusal(); got != test.want {
			t.Errorf("%s: %d, want %d", test.rule, got, test.want)
		}
	}
}

func TestAChainIsReadByTheProgramOfItsFamilyWithoutComments(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"iptables":  `printf '%s\n' '-P FORWARD DROP' '-A FORWARD -i eth0 -j ACCEPT' '-A FORWARD -i svc0 -m comment --comment "of \"pods\", then -j DROP" -j ACCEPT' '-A FORWARD -m comment --comment others -j DROP'; echo '# a warning' >&2`,
		"ip6tables": `echo "$@: in use" >&2; echo 'more of it' >&2; exit 4`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+content+"\n"), 0o700); err != nil { //nolint:gosec // It is run.
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "iptables")
	c, err := Read(t.Context(), Program(program, false), "filter", "FORWARD")
	if err != nil || c.Policy != "DROP" || !slices.Equal(c.Rules, []string{"-i eth0 -j ACCEPT", "-i svc0 -j ACCEPT", "-j DROP"}) {
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
