package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"svc.dev/svc/apiserver/serviceaccount"
)

// Tokens counts the uses of service account tokens, in the metrics of kube-apiserver 1.28.
type Tokens struct {
	registry *prometheus.Registry
	counters map[serviceaccount.Use]prometheus.Counter
}

// NewTokens returns counters of zero.
func NewTokens() *Tokens {
	t := &Tokens{registry: prometheus.NewRegistry(), counters: map[serviceaccount.Use]prometheus.Counter{}}
	for use, metric := range map[serviceaccount.Use]struct{ name, help string }{
		serviceaccount.Legacy:        {"legacy_tokens_total", "Cumulative legacy service account tokens used"},
		serviceaccount.LegacyManual:  {"legacy_manual_token_uses_total", "Cumulative manually created legacy tokens used"},
		serviceaccount.LegacyAuto:    {"legacy_auto_token_uses_total", "Cumulative auto-generated legacy tokens used"},
		serviceaccount.LegacyInvalid: {"invalid_legacy_auto_token_uses_total", "Cumulative invalid auto-generated legacy tokens used"},
		serviceaccount.Valid:         {"valid_tokens_total", "Cumulative valid projected service account tokens used"},
		serviceaccount.Stale:         {"stale_tokens_total", "Cumulative stale projected service account tokens used"},
	} {
		t.counters[use] = prometheus.NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + metric.name, Help: "[ALPHA] " + metric.help})
		t.registry.MustRegister(t.counters[use])
	}
	return t
}

// Count counts a use.
func (t *Tokens) Count(use serviceaccount.Use) { t.counters[use].Inc() }

// add adds the families.
func (t *Tokens) add(families map[string]*dto.MetricFamily) error {
	own, err := t.registry.Gather()
	for _, f := range own {
		families[f.GetName()] = f
	}
	return err
}
