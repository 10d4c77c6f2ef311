// Package gates has the defaults of the libraries' feature gates.
package gates

import (
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
)

// Set makes the defaults of the libraries' feature gates, which are global,
// those of svc, at the start of a program or of tests. Streaming lists are alpha
// and off in the specification (document 1, sections 4 and 9), so svc's own
// clients do not ask for them. And one goroutine decodes the events of a type,
// as release 1.28 did: with one for each event, an event passes two more on its
// way.
func Set() error {
	for _, feature := range []featuregate.Feature{features.WatchList, features.ConcurrentWatchObjectDecode} {
		if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(feature, false); err != nil {
			return err
		}
	}
	gates, ok := clientfeatures.FeatureGates().(interface {
		Set(feature clientfeatures.Feature, value bool) error
	})
	if !ok {
		return nil // they are somebody else's
	}
	return gates.Set(clientfeatures.WatchListClient, false)
}
