package healthserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics gathers the metrics of Kubernetes' libraries and of controller-runtime.
// Both have families for the process and the Go runtime; those of the former are
// used.
func Metrics() prometheus.Gatherer {
	metrics.RegisterRESTClientMetrics(metrics.MetricRequestLatency, metrics.MetricRequestRetry)
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return merge(legacyregistry.DefaultGatherer, metrics.Registry)
	})
}

// merge gathers from both. If both have a family, it has the metrics of both; of two
// metrics with the same labels, that of first is used.
func merge(first, second prometheus.Gatherer) ([]*dto.MetricFamily, error) {
	families, err := first.Gather()
	if err != nil {
		return nil, err
	}
	known := make(map[string]*dto.MetricFamily, len(families))
	for _, f := range families {
		known[f.GetName()] = f
	}
	more, err := second.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range more {
		if k, ok := known[f.GetName()]; !ok {
			families = append(families, f)
		} else if k.GetType() == f.GetType() {
			k.Metric = append(k.Metric, others(f.Metric, k.Metric)...)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, nil
}

// others returns the metrics whose labels differ from those of all known ones.
func others(metrics, known []*dto.Metric) []*dto.Metric {
	have := make(map[string]bool, len(known))
	for _, m := range known {
		have[labelsOf(m)] = true
	}
	return slices.DeleteFunc(metrics, func(m *dto.Metric) bool { return have[labelsOf(m)] })
}

// labelsOf returns the labels of a metric as text. They are sorted by name.
func labelsOf(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.Label {
		fmt.Fprintf(&b, "%s=%q,", l.GetName(), l.GetValue())
	}
	return b.String()
}
