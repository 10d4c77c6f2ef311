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
	} {
		if _, err := parseFlags(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error that names %s", test.args, err, test.want)
		}
	}
}
