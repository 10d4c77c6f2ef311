package metrics

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"svc.dev/svc/apiserver/serviceaccount"
)

func TestUsesOfTokensAreCountedUnderTheNamesOfKubernetes(t *testing.T) {
	for use, name := range map[serviceaccount.Use]string{
		serviceaccount.Legacy:        "serviceaccount_legacy_tokens_total",
		serviceaccount.LegacyManual:  "serviceaccount_legacy_manual_token_uses_total",
		serviceaccount.LegacyAuto:    "serviceaccount_legacy_auto_token_uses_total",
		serviceaccount.LegacyInvalid: "serviceaccount_invalid_legacy_auto_token_uses_total",
		serviceaccount.Valid:         "serviceaccount_valid_tokens_total",
		serviceaccount.Stale:         "serviceaccount_stale_tokens_total",
	} {
		tokens := NewTokens()
		tokens.Count(use)
		families := map[string]*dto.MetricFamily{}
		if err := tokens.add(families); err != nil {
			t.Fatal(err)
		}
		for family, f := range families {
			want := 0.0
			if family == name {
				want = 1
			}
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != want {
				t.Errorf("%v: %s is %v, want %v", use, family, got, want)
			}
		}
		if families[name] == nil {
			t.Errorf("%v: there is no %s", use, name)
		}
	}
}
