package apiserver

import (
	"slices"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

func TestPoliciesActWithTheirGatesOrOnceTheyAreStable(t *testing.T) {
	const validating, mutating = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
	for _, test := range []struct {
		minor    int
		on, want []string // gates that are on, plugins that are off
	}{
		{28, nil, []string{validating, mutating}},
		{28, []string{validating}, []string{mutating}},
		{30, nil, []string{mutating}}, // the gate is locked until 1.31, and gone then
		{35, []string{mutating}, nil},
		{36, []string{mutating}, nil}, // by default
		{36, nil, []string{mutating}},
	} {
		c := &chain{options: &options.Options{Release: release.Release{Major: 1, Minor: test.minor}}, stores: &stores{gate: func(gate string) bool {
			return slices.Contains(test.on, gate)
		}}}
		if got := c.policiesOff(); !slices.Equal(got, test.want) {
			t.Errorf("release 1.%d with %v: %v are off, want %v", test.minor, test.on, got, test.want)
		}
	}
}
