package rules

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/releases"
)

func TestDriversOfACSINodeChangeOnlyTheirCountAndOnlyWithMutableCSINodeAllocatableCount(t *testing.T) {
	const base = "\nmetadata: {name: a, resourceVersion: \"1\"}\nspec: {drivers: [{name: a, nodeID: x, allocatable: {count: 8}}, {name: b, nodeID: x, allocatable: {count: 8}}]}\n"
	refusal := func(name, id, more string) string {
		return fmt.Sprintf(`spec.drivers: Invalid value: {"name":%q,"nodeID":%q,"topologyKeys":null%s}: field is immutable`, name, id, more)
	}
	count := func(n int) string { return fmt.Sprintf(`,"allocatable":{"count":%d}`, n) }
	for _, test := range []struct {
		rule, drivers string
		on, off       []string // the errors
	}{
		{"an update may keep them", `{name: a, nodeID: x, allocatable: {count: 8}}, {name: b, nodeID: x, allocatable: {count: 8}}`, nil, nil},
		{"drivers may come and go", `{name: b, nodeID: x, allocatable: {count: 8}}, {name: c, nodeID: x}`, nil, nil},
		{"the count needs the gate", `{name: a, nodeID: x, allocatable: {count: 9}}, {name: b, nodeID: x, allocatable: {count: 7}}`,
			nil, []string{refusal("a", "x", count(9)), refusal("b", "x", count(7))}},
		{"so does its absence", `{name: a, nodeID: x}, {name: b, nodeID: x, allocatable: {count: 8}}`, nil, []string{refusal("a", "x", "")}},
		{"the ID never changes", `{name: a, nodeID: x, allocatable: {count: 9}}, {name: b, nodeID: z, allocatable: {count: 8}}`,
			[]string{refusal("b", "z", "")}, []string{refusal("a", "x", count(9)), refusal("b", "z", count(8))}},
	} {
		for on, want := range map[bool][]string{true: test.on, false: test.off} {
			k := kindNamed(t, "CSINode", releases.Newest, "MutableCSINodeAllocatableCount", ptr.To(on))
			got := messages(k, resourcetest.Object(t, k, base, "spec: {drivers: ["+test.drivers+"]}"), resourcetest.Object(t, k, base, "{}"))
			if !slices.Equal(got, want) {
				t.Errorf("%s: gate %t:\n%q, want\n%q", test.rule, on, got, want)
			}
		}
	}
}
