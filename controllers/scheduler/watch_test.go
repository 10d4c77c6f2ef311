package scheduler

import (
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDeviceTaintRulesOfReleasesBefore137AreWatchedWithTheirGate(t *testing.T) {
	served := func(obj client.Object) (bool, error) {
		_, newest := obj.(*resourcev1.DeviceTaintRule)
		return !newest, nil
	}
	for _, on := range []bool{false, true} {
		watched, err := servedKinds(served, func(string) (bool, bool) { return on, on })
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(watched, func(k kind) bool {
			_, ok := k.object.(*resourcev1beta2.DeviceTaintRule)
			return ok
		})
		if got != on || len(watched) < len(kinds()) {
			t.Errorf("gate %v: rules are watched: %v, with %d kinds", on, got, len(watched))
		}
	}
}
