package rules

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// The estimates are exact where the sizes of all values are known.
func TestTheCostOfAnExpression(t *testing.T) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv()
	cost := func(expression string) uint64 {
		t.Helper()
		compiled, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		estimate, err := env.EstimateCost(compiled, &library.CostEstimator{})
		if err != nil {
			t.Fatal(err)
		}
		if estimate.Min > estimate.Max {
			t.Errorf("%s costs between %d and %d", expression, estimate.Min, estimate.Max)
		}
		return estimate.Max
	}
	for expression, want := range map[string]uint64{
		"1 < 2":               1,
		"1 < 2 && 3 < 4":      2,
		"[]":                  10,
		"[1, 2, 3]":           10,
		"[[1], [2]]":          3 * 10,
		"[1, 2].size() < 100": 10 + 1 + 1, // the list, its size, the comparison
	} {
		if got := cost(expression); got != want {
			t.Errorf("%s costs %d, want %d", expression, got, want)
		}
	}
	match := func(expression, input int) uint64 {
		return cost("'" + strings.Repeat("a", input) + "'.matches('" + strings.Repeat("b", expression) + "')")
	}
	base := match(400, 1000)
	for name, got := range map[string]uint64{"of the expression": match(4000, 1000), "of the input": match(400, 10000)} {
		if got < 9*base || got > 11*base {
			t.Errorf("ten times the length %s costs %d, and a tenth %d", name, got, base)
		}
	}
}
