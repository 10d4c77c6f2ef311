//go:build linux

package ruleset

import (
	"slices"
	"strings"
	"testing"
)

func TestTargetsHaveTheSameProbability(t *testing.T) {
	if got, want := choose([]string{"goto a", "goto b", "goto c"}), []string{"numgen random mod 3 0 goto a", "numgen random mod 2 0 goto b", "goto c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := numbered(strings.Split("abc", "")), "0 : a , 1 : b , 2 : c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
