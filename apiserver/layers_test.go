package apiserver

import (
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/netbatch"
	"svc.dev/svc/apiserver/routecache"
)

// used reports for each gate whether its layer is used.
func (a layers) used() map[featuregate.Feature]bool {
	_, batched := a.listener(nil).(*netbatch.Listener)
	_, cached := a.router(restful.CurlyRouter{}).(*routecache.Router)
	return map[featuregate.Feature]bool{
		gates.SvcBatchedWrites:     batched,
		gates.SvcSharedWatches:     a.sharedWatches(),
		gates.SvcPartWatches:       a.partWatches(),
		gates.SvcCachedRoutes:      cached,
		gates.SvcFastJSON:          a.fastJSON(),
		gates.SvcBoundedHistory:    a.historyBytes() > 0,
		gates.SvcLazyRoutes:        !a.allRoutes(),
		gates.SvcEarlyInformers:    len(a.earlyInformers([]informerFactory{nil})) == 1,
		gates.SvcSharedDefinitions: a.definitionCodec(nil) != nil,
		gates.SvcCachedLists:       a.items(clock.RealClock{}) != nil,
	}
}

func TestEachGateSwitchesItsLayerOnAndOff(t *testing.T) {
	for _, gate := range gates.Own() {
		for _, on := range []bool{true, false} {
			others := map[featuregate.Feature]featuregate.FeatureSpec{}
			for _, other := range gates.Own() {
				others[other] = featuregate.FeatureSpec{Default: !on, PreRelease: featuregate.Beta}
			}
			set := featuregate.NewFeatureGate()
			if err := set.Add(others); err != nil {
				t.Fatal(err)
			}
			if err := set.SetFromMap(map[string]bool{string(gate): on}); err != nil {
				t.Fatal(err)
			}
			for layer, used := range (layers{set}).used() {
				if want := on == (layer == gate); used != want {
					t.Errorf("%s=%v, all others %v: the layer of %s is used: %v, want %v", gate, on, !on, layer, used, want)
				}
			}
		}
	}
}
