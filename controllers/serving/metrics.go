package serving

import (
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

// merge gathers from first, and the families that it has not from second.
func merge(first, second prometheus.Gatherer) ([]*dto.MetricFamily, error) {
	families, err := first.Gather()
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(families))
	for _, f := range families {
		known[f.GetName()] = true
	}
	more, err := second.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range more {
		if !known[f.GetName()] {
			families = append(families, f)
		}
	}
	return families, nil
}
