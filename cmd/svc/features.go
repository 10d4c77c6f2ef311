package main

import (
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
)

// setFeatures makes the defaults of the libraries' feature gates, which are
// global, those of the specification: streaming lists are alpha and off
// (document 1, sections 4 and 9), so svc's own clients do not ask for them.
func setFeatures() error {
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.WatchList, false); err != nil {
		return err
	}
	gates, ok := clientfeatures.FeatureGates().(interface {
		Set(feature clientfeatures.Feature, value bool) error
	})
	if !ok {
		return nil // they are somebody else's
	}
	return gates.Set(clientfeatures.WatchListClient, false)
}
