//go:build linux

package ruleset

import (
	"slices"
	"strings"
	"testing"
)

func TestManyEndpointsAreInAMapAndFewHaveRules(t *testing.T) {
	if got, want := choose([]string{"a", "b", "c"}), []string{"numgen random mod 3 0 goto a", "numgen random mod 2 0 goto b", "goto c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	many := choose(strings.Split("abcdefghi", ""))
	if len(many) != 1 || !strings.HasPrefix(many[0], "numgen random mod 9 vmap { 0 : goto a , 1 : goto b ,") || !strings.HasSuffix(many[0], "8 : goto i }") {
		t.Errorf("got %q", many)
	}
}
