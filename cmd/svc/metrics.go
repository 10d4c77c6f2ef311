package main

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/releases"
)

// setMetrics sets the libraries' metrics of this process as the API server's flags
// say. It is done once in a process.
func setMetrics(ctx context.Context, o *options.Options) error {
	if o.ShowHiddenMetrics != "" {
		metrics.SetShowHidden()
	}
	return gates.Record(ctx, releases.Release(o.Release.Minor), utilfeature.DefaultFeatureGate)
}
