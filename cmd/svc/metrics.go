package main

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics"

	"svc.dev/svc/apiserver/options"
)

// setMetrics sets the libraries' metrics of this process as the API server's flags
// say. It is done once in a process.
func setMetrics(o *options.Options) {
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	if o.ShowHiddenMetrics != "" {
		metrics.SetShowHidden()
	}
}
