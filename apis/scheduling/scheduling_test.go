package scheduling

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestPriorityClass(t *testing.T) {
	resourcetest.Rules(t, priorityClasses, `
metadata: {name: high}
value: 1000
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "a negative value is accepted", Change: `value: -5`},
		{Name: "users' values end at a billion", Change: `value: 1000000001`,
			Want: []string{`value: Forbidden: maximum allowed value of a user defined priority is 1000000000`}},
		{Name: "the system's classes are accepted as they are", Change: `{metadata: {name: system-node-critical}, value: 2000001000}`},
		{Name: "the system's classes keep their value", Change: `{metadata: {name: system-cluster-critical}, value: 1}`,
			Want: []string{`metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-cluster-critical PriorityClass must be 2000000000`}},
		{Name: "the system's classes are not the default", Change: `{metadata: {name: system-cluster-critical}, value: 2000000000, globalDefault: true}`,
			Want: []string{`metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: globalDefault of system-cluster-critical PriorityClass must be false`}},
		{Name: "the system prefix is reserved", Change: `metadata: {name: system-mine}`,
			Want: []string{`metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class`}},
		{Name: "the preemption policy is one of two", Change: `preemptionPolicy: Always`,
			Want: []string{`preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"`}},
		{Name: "an update is not measured by the rules of new classes", Update: true, Change: `value: 1000000001`, Want: []string{`value: Forbidden: may not be changed in an update.`}},
		{Name: "the value is immutable", Update: true, Change: `value: 2`, Want: []string{`value: Forbidden: may not be changed in an update.`}},
		{Name: "the preemption policy is immutable", Update: true, Change: `preemptionPolicy: Never`,
			Want: []string{`preemptionPolicy: Invalid value: "Never": field is immutable`}},
		{Name: "the description may change", Update: true, Change: `description: for what matters`},
	})
}
