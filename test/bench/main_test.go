package main

import (
	"strings"
	"testing"
)

func TestBadFlagsAreNamed(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--rounds=0", "--rounds=0"},
		{"--only=(", "--only"},
		{"start", `"start"`},
		{"--plot=a.svg --only=start", "--only=start"},
	} {
		if _, err := parseFlags(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error that names %s", test.args, err, test.want)
		}
	}
}

func TestTheDefaultOfAQuickRunIsOneRound(t *testing.T) {
	for args, want := range map[string]int{"": 3, "--quick": 1, "--quick --rounds=3": 3} {
		o, err := parseFlags(strings.Fields(args))
		if err != nil || o.rounds != want {
			t.Errorf("%q: %d rounds, %v, want %d", args, o.rounds, err, want)
		}
	}
}
