package node

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestRuntimeClass(t *testing.T) {
	resourcetest.Rules(t, runtimeClasses, `
metadata: {name: sandboxed}
handler: gvisor
overhead: {podFixed: {memory: 64Mi, cpu: 10m}}
scheduling: {nodeSelector: {sandbox: "true"}, tolerations: [{key: sandbox, operator: Exists, effect: NoSchedule}]}
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "the handler is required", Change: `handler: ""`, Want: []string{`handler: Required value`}},
		{Name: "the handler is a label", Change: `handler: a.b`, Want: []string{
			`handler: Invalid value: "a.b": must not contain dots`}},
		{Name: "the handler is immutable", Update: true, Change: `handler: kata`, Want: []string{`handler: Invalid value: "kata": field is immutable`}},
		{Name: "overhead is not negative", Change: `overhead: {podFixed: {cpu: "-1"}}`,
			Want: []string{`overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{Name: "overhead is of what containers need", Change: `overhead: {podFixed: {cpus: "1"}}`, Want: []string{
			`overhead.limits[cpus]: Invalid value: "cpus": must be a standard resource type or fully qualified`,
			`overhead.limits[cpus]: Invalid value: "cpus": must be a standard resource for containers`}},
		{Name: "tolerations make sense", Change: `scheduling: {tolerations: [{}, {key: a, operator: Exists, value: b}, {key: a, effect: NoSchedule, tolerationSeconds: 3}, {key: a, operator: Near}]}`, Want: []string{
			"scheduling.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
			"scheduling.tolerations[1].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
			"scheduling.tolerations[2].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
			`scheduling.tolerations[3].operator: Unsupported value: "Near": supported values: "Equal", "Exists"`}},
		{Name: "tolerations are unique", Change: `scheduling: {tolerations: [{key: a, operator: Exists}, {key: a, operator: Exists}]}`,
			Want: []string{`scheduling.tolerations[1]: Duplicate value: {"key":"a","operator":"Exists"}`}},
	})
}
