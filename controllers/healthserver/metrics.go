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

// Metrics gathers those of Kubernetes' libraries and those of the controllers.
// Both have families for the process and the Go runtime, of which those of the
// former are taken.
func Metrics() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return merge(legacyregistry.DefaultGatherer, metrics.Registry)
	})
}

// merge gathers from both. Where both have a family, its metrics without labels
// are first's; those of which the labels tell them apart are there from both.
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

// others are the metrics that have other labels than each of the known ones.
func others(metrics, known []*dto.Metric) []*dto.Metric {
	have := make(map[string]bool, len(known))
	for _, m := range known {
		have[labelsOf(m)] = true
	}
	return slices.DeleteFunc(metrics, func(m *dto.Metric) bool { return have[labelsOf(m)] })
}

// labelsOf are the labels of a metric, which are sorted by name.
func labelsOf(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.Label {
		fmt.Fprintf(&b, "%s=%q,", l.GetName(), l.GetValue())
	}
	return b.String()
}
