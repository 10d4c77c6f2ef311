package rules

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/releases"
)

func TestPoliciesOfCapacitiesAreInIntegersUntilTheirGateIsOn(t *testing.T) {
	const slice = `
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi, requestPolicy: %s}}}]
`
	const path = "spec.devices[0].capacity[memory].requestPolicy"
	for _, test := range []struct {
		policy  string
		on, off []string
	}{
		{policy: `{default: 1500m, validValues: ["1", 1500m, "2"]}`, off: []string{path + `.validValues[2]: Duplicate value: "2"`}},
		{policy: `{default: "1", validRange: {min: 500m, step: "1"}}`,
			on: []string{path + `.validRange.step: Invalid value: "1": value is not a multiple of a given step (1) from (500m)`}},
	} {
		for r := releases.Oldest; r <= releases.Newest; r++ {
			for _, set := range []*bool{nil, ptr.To(true), ptr.To(false)} {
				k := kindNamed(t, "ResourceSlice", r, "DRAFractionalCapacityRange", set)
				want := test.off
				if ptr.Deref(set, r >= 37) {
					want = test.on
				}
				if got := messages(k, resourcetest.Object(t, k, fmt.Sprintf(slice, test.policy), "{}"), nil); !slices.Equal(got, want) {
					t.Fatalf("%s at %v, gate %v: %q, want %q", test.policy, r, set, got, want)
				}
			}
		}
	}
}
