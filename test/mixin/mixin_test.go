package mixin_test

import (
	"slices"
	"testing"

	"svc.dev/svc/test/mixin"
)

func TestASeriesIsMissingWithoutOneOfItsLabels(t *testing.T) {
	const metrics = "# TYPE requests_total counter\nrequests_total{code=\"200\",host=\"a\"} 1\nup 1\n"
	for _, test := range []struct {
		series  mixin.Series
		missing bool
	}{
		{mixin.Series{Name: "requests_total"}, false},
		{mixin.Series{Name: "up"}, false},
		{mixin.Series{Name: "requests_total", Labels: []string{"host", `code="200"`}}, false},
		{mixin.Series{Name: "requests"}, true},
		{mixin.Series{Name: "requests_total", Labels: []string{"ost"}}, true},
		{mixin.Series{Name: "requests_total", Labels: []string{"host", `code="500"`}}, true},
		{mixin.Series{Name: "up", Labels: []string{"host"}}, true},
	} {
		missing := mixin.Missing(metrics, []mixin.Series{{Name: "up"}, test.series})
		if len(missing) > 0 != test.missing || len(missing) > 1 {
			t.Errorf("%+v: %q", test.series, missing)
		}
	}
	if all := slices.Concat(mixin.ControlPlane, mixin.Kubelet); len(mixin.Missing("", all)) != len(all) {
		t.Error("nothing is served, and something is not missing")
	}
}
