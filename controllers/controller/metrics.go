package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Registered registers a metric with those that the process serves at /metrics. It
// returns the metric, or the equal one that was registered before: by a library, or
// by the manager of an earlier term. It panics if a different metric has the name.
func Registered[C prometheus.Collector](metric C) C {
	err := metrics.Registry.Register(metric)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		panic(err) // the code has two metrics of one name
	}
	return metric
}
