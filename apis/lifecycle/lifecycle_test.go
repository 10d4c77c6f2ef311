package lifecycle

import (
	"slices"
	"strings"
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

const (
	notAKey  = `must include a prefix (e.g. 'example.com/key')`
	notAUUID = `must be a lowercase UUID in 8-4-4-4-12 format`
	notAName = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
)

func TestEvictionRequest(t *testing.T) {
	resourcetest.Rules(t, evictionRequests, `
metadata: {name: drain, namespace: default}
spec:
  requester: example.com/drain
  intent: Eviction
  target: {pod: {name: a, uid: 6ba7b810-9dad-11d1-80b4-00c04fd430c8}}
`, []resourcetest.Rule{
		{Name: "a request is accepted"},
		{Name: "a target is required", Change: `spec: {target: {pod: null}}`, Want: []string{"spec.target: Invalid value: \"\": must specify one of: `pod`"}},
		{Name: "a pod has a name and a UID", Change: `spec: {target: {pod: {name: "", uid: ""}}}`,
			Want: []string{`spec.target.pod.name: Required value`, `spec.target.pod.uid: Required value`}},
		{Name: "the name and the UID are valid", Change: `spec: {target: {pod: {name: A, uid: a}}}`, Want: []string{
			`spec.target.pod.name: Invalid value: "A": ` + notAName, `spec.target.pod.uid: Invalid value: "a": ` + notAUUID}},
		{Name: "an intent is one of two", Change: `spec: {intent: Pause}`, Want: []string{`spec.intent: Unsupported value: "Pause": supported values: "Eviction", "Withdrawn"`}},
		{Name: "an intent and a requester are required", Change: `spec: {intent: "", requester: ""}`, Want: []string{`spec.intent: Required value`, `spec.requester: Required value`}},
		{Name: "a requester has a domain", Change: `spec: {requester: drain}`, Want: []string{`spec.requester: Invalid value: "drain": ` + notAKey}},
		{Name: "a requester is none of Kubernetes' own", Change: `spec: {requester: a.K8s.io/drain}`, Want: []string{
			`spec.requester: Invalid value: "a.K8s.io/drain": prefix part ` + notAName, `spec.requester: Invalid value: "a.K8s.io/drain": domain names *.k8s.io, *.kubernetes.io are reserved`}},
		{Name: "a domain that ends alike is another one", Change: `spec: {requester: notk8s.io/drain}`},
		{Name: "an intent may change", Update: true, Change: `spec: {intent: Withdrawn}`},
		{Name: "a changed intent is one of two", Update: true, Change: `spec: {intent: Pause}`, Want: []string{`spec.intent: Unsupported value: "Pause": supported values: "Eviction", "Withdrawn"`}},
		{Name: "the target and the requester are kept", Update: true, Change: `spec: {requester: example.com/other, target: {pod: {name: b}}}`, Want: []string{
			`spec.requester: Invalid value: "example.com/other": field is immutable`,
			`spec.target: Invalid value: {"pod":{"name":"b","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}: field is immutable`}},
		{Name: "a generation grows", Status: true, Was: `status: {observedGeneration: 1}`, Change: `status: {observedGeneration: 2}`},
		{Name: "a generation does not shrink", Status: true, Was: `status: {observedGeneration: 2}`, Change: `status: {observedGeneration: 1}`,
			Want: []string{`status.observedGeneration: Invalid value: 1: may not be decreased from 2`}},
		{Name: "a generation stays", Status: true, Was: `status: {observedGeneration: 2}`, Change: `status: {}`,
			Want: []string{`status.observedGeneration: Invalid value: field cannot be cleared once set`}},
		{Name: "a generation is positive", Status: true, Change: `status: {observedGeneration: 0}`,
			Want: []string{`status.observedGeneration: Invalid value: 0: must be greater than or equal to 1`}},
		{Name: "conditions are complete", Status: true, Change: `status: {conditions: [{type: Failed, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
			Want: []string{`status.conditions[0].reason: Required value`}},
		{Name: "there are a hundred conditions at most", Status: true, Change: `status: {conditions: [` + strings.Repeat(`{}, `, 100) + `{}]}`,
			Want: []string{`status.conditions: Too many: 101: must have at most 100 items`}},
	})
}

// The responders of an eviction, and what they report, in short.
const (
	inactive = `{name: example.com/a, priority: 10000, state: Inactive}`
	active   = `{name: example.com/a, priority: 10000, state: Active}`
	complete = `{name: example.com/a, priority: 10000, state: Completed}`
	byDef    = `{name: imperative-eviction.k8s.io/evictor, priority: 100, state: Inactive}`
	byDefNow = `{name: imperative-eviction.k8s.io/evictor, priority: 100, state: Active}`
	silent   = `{name: example.com/a}`
	started  = `{name: example.com/a, startTime: "2026-01-01T00:00:00Z"}`
	earlier  = `{name: example.com/a, startTime: "2025-12-31T23:50:00Z", heartbeatTime: "2025-12-31T23:55:00Z"}`
	overdue  = `{name: example.com/a, startTime: "2025-12-31T23:30:00Z"}`
	done     = `{name: example.com/a, startTime: "2025-12-31T23:50:00Z", completionTime: "2025-12-31T23:55:00Z"}`
	defWaits = `{name: imperative-eviction.k8s.io/evictor}`
	defRuns  = `{name: imperative-eviction.k8s.io/evictor, startTime: "2026-01-01T00:00:00Z"}`
	evicted  = `conditions: [{type: TargetEvicted, status: "True", reason: PodDeleted, lastTransitionTime: "2026-01-01T00:00:00Z"}]`
)

// status returns a status with responders and their reports.
func status(targets, reports string, more ...string) string {
	return "status: {targetResponders: [" + targets + "], responders: [" + reports + "]" + strings.Join(append([]string{""}, more...), ", ") + "}"
}

func TestRespondersOfAnEviction(t *testing.T) {
	const lengths = `status.responders: Invalid value: null: must be the same length as status.targetResponders and contain the same keys`
	running := status(active+", "+byDef, earlier+", "+defWaits)
	resourcetest.Rules(t, evictions, `
metadata: {name: a, namespace: default}
spec: {target: {pod: {name: a, uid: 6ba7b810-9dad-11d1-80b4-00c04fd430c8}}}
`, []resourcetest.Rule{
		{Name: "an eviction is accepted"},
		{Name: "a target is required", Change: `spec: {target: {pod: null}}`, Want: []string{"spec.target: Invalid value: \"\": must specify one of: `pod`"}},
		{Name: "the target is kept", Update: true, Change: `spec: {target: {pod: {name: b}}}`,
			Want: []string{`spec.target: Invalid value: {"pod":{"name":"b","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}}: field is immutable`}},
		{Name: "the first responder is active at once", Status: true, Change: status(active+", "+byDef, started+", "+defWaits)},
		{Name: "an inactive first responder is refused", Status: true, Change: status(inactive, silent),
			Want: []string{`status.targetResponders[0].state: Invalid value: "Inactive": must be one of: Active, because this responder is next in line`}},
		{Name: "each responder has a report", Status: true, Change: `status: {targetResponders: [` + active + `]}`, Want: []string{lengths,
			`status.targetResponders[0]: Invalid value: "example.com/a": "example.com/a" has to be tracked in status.responders first`}},
		{Name: "an active responder has started", Status: true, Change: status(active, silent),
			Want: []string{`status.responders[0].startTime: Required value: is required for an active responder`}},
		{Name: "responders are kept", Status: true, Was: running, Change: `status: {targetResponders: [` + active + `], responders: [` + earlier + `]}`, Want: []string{
			`status.targetResponders: Invalid value: [{"name":"example.com/a","priority":10000,"state":"Active"}]: must preserve the same length and the same keys`}},
		{Name: "a priority is kept", Status: true, Was: running, Change: status(strings.Replace(active, "10000", "20000", 1)+", "+byDef, earlier+", "+defWaits),
			Want: []string{`status.targetResponders[0].priority: Invalid value: field cannot be modified once set`}},
		{Name: "a priority is in its range", Status: true, Change: status(`{name: example.com/a, priority: 100001, state: Active}`, started),
			Want: []string{`status.targetResponders[0].priority: Invalid value: 100001: must be less than or equal to 100000`}},
		{Name: "the active responder reports", Status: true, Was: running,
			Change: status(active+", "+byDef, strings.Replace(earlier, "2025-12-31T23:55:00Z", "2026-01-01T00:00:00Z", 1)+", "+defWaits)},
		{Name: "a report is of the present", Status: true, Was: running,
			Change: status(active+", "+byDef, strings.Replace(earlier, "2025-12-31T23:55:00Z", "2025-12-31T23:56:00Z", 1)+", "+defWaits),
			Want:   []string{`status.responders[0].heartbeatTime: Invalid value: "2025-12-31T23:56:00Z": must be set to the present time`}},
		{Name: "an inactive responder does not report", Status: true, Was: running, Change: status(active+", "+byDef, earlier+", "+defRuns),
			Want: []string{`status.responders[1]: Invalid value: {"name":"imperative-eviction.k8s.io/evictor","startTime":"2026-01-01T00:00:00Z"}: field is immutable`,
				`status.targetResponders[1].state: Forbidden: must stay Active because the responder is in progress and it should report status.responders.heartbeatTime or status.responders.completionTime`}},
		{Name: "a responder in time stays active", Status: true, Was: running, Change: status(strings.Replace(active, "Active", "Interrupted", 1)+", "+byDefNow, earlier+", "+defRuns), Want: []string{
			`status.targetResponders[0].state: Forbidden: must stay Active because the responder is in progress and it should report status.responders.heartbeatTime or status.responders.completionTime`}},
		{Name: "one that is overdue is interrupted", Status: true, Was: status(active+", "+byDef, overdue+", "+defWaits),
			Change: status(strings.Replace(active, "Active", "Interrupted", 1)+", "+byDefNow, overdue+", "+defRuns)},
		{Name: "the next one follows one that is done", Status: true, Was: status(active+", "+byDef, done+", "+defWaits), Change: status(complete+", "+byDefNow, done+", "+defRuns)},
		{Name: "the next one must follow", Status: true, Was: status(active+", "+byDef, done+", "+defWaits), Change: status(complete+", "+byDef, done+", "+defWaits),
			Want: []string{`status.targetResponders[1].state: Invalid value: "Inactive": must be one of: Active, because this responder is next in line`}},
		{Name: "two are not active", Status: true, Was: running, Change: status(active+", "+byDefNow, earlier+", "+defRuns),
			Want: []string{`status.targetResponders[1].state: Invalid value: "Active": must be one of: Inactive, because the previously active has not finished processing`}},
		{Name: "a final state is kept", Status: true, Was: status(complete+", "+byDefNow, done+", "+defRuns), Change: status(active+", "+byDefNow, done+", "+defRuns),
			Want: []string{`status.targetResponders[0].state: Invalid value: "Active": must be one of: Completed, because final state is immutable`}},
		{Name: "an evicted pod ends the active one", Status: true, Was: running, Change: status(strings.Replace(active, "Active", "Canceled", 1)+", "+byDef, earlier+", "+defWaits, evicted)},
		{Name: "one that has not said that it is done is not", Status: true, Was: running, Change: status(complete+", "+byDef, earlier+", "+defWaits, evicted),
			Want: []string{`status.targetResponders[0].state: Invalid value: "Completed": cannot become Completed because the responder didn't report status.responders.completionTime`}},
		{Name: "responders may be in any order of the list", Status: true, Change: status(byDef+", "+active, started+", "+defWaits)},
		{Name: "a low priority is Kubernetes' own", Status: true, Change: status(`{name: example.com/a, priority: 999, state: Active}`, started),
			Want: []string{`status.targetResponders[0].priority: Invalid value: 999: priorities 0-999 are reserved for responders with *.k8s.io suffix`}},
		{Name: "Kubernetes' own priority is fixed", Status: true, Change: status(`{name: imperative-eviction.k8s.io/evictor, priority: 101, state: Active}`, defRuns),
			Want: []string{`status.targetResponders[0].priority: Invalid value: 101: core k8s responder is expected to have priority: 100`}},
		{Name: "a condition is not taken back", Status: true, Was: status(complete, done, evicted), Change: status(complete, done), Want: []string{
			`status.conditions: Invalid value: null: TargetEvicted condition status cannot be reverted`}},
		{Name: "an evicted pod leaves none active", Status: true, Was: running, Change: status(active+", "+byDef, earlier+", "+defWaits, evicted),
			Want: []string{`status.targetResponders[0].state: Invalid value: "Active": must be one of: Canceled, Completed, Interrupted, because the eviction request has finished processing`}},
		{Name: "requesters have names and intents", Status: true, Change: `status: {requesters: [{name: a, intent: b}]}`, Want: []string{
			`status.requesters[0].name: Invalid value: "a": ` + notAKey, `status.requesters[0].intent: Unsupported value: "b": supported values: "Eviction", "Withdrawn"`}},
		{Name: "an unknown state", Status: true, Change: status(strings.Replace(active, "Active", "Idle", 1), silent), Want: []string{
			`status.targetResponders[0].state: Unsupported value: "Idle": supported values: "Active", "Canceled", "Completed", "Inactive", "Interrupted"`}},
	})
}

func TestTimesOfAReport(t *testing.T) {
	was := status(active, `{name: example.com/a, startTime: "2025-12-31T23:50:00Z", heartbeatTime: "2026-01-01T00:00:10Z", completionTime: "2025-12-31T23:59:00Z"}`)
	report := func(more string) string {
		return status(active, `{name: example.com/a, startTime: "2026-01-01T00:00:00Z", `+more+`}`)
	}
	resourcetest.Rules(t, evictions, `
metadata: {name: a, namespace: default}
spec: {target: {pod: {name: a, uid: 6ba7b810-9dad-11d1-80b4-00c04fd430c8}}}
`, []resourcetest.Rule{
		{Name: "all times are of the present", Status: true, Change: report(`heartbeatTime: "2026-01-01T00:00:20Z", completionTime: "2026-01-01T00:00:20Z", expectedCompletionTime: "2027-01-01T00:00:00Z"`)},
		{Name: "an expected end is not before the start", Status: true, Change: report(`expectedCompletionTime: "2025-12-31T00:00:00Z"`),
			Want: []string{`status.responders[0].expectedCompletionTime: Invalid value: "2025-12-31T00:00:00Z": must occur after status.responders[0].startTime`}},
		{Name: "an expected end is within ten years", Status: true, Change: report(`expectedCompletionTime: "2037-01-01T00:00:00Z"`),
			Want: []string{`status.responders[0].expectedCompletionTime: Invalid value: "2037-01-01T00:00:00Z": must complete within 10 years`}},
		{Name: "a message is short", Status: true, Change: report(`message: "` + strings.Repeat("ä", 4001) + `"`),
			Want: []string{`status.responders[0].message: Too long: may not be more than 4000 characters`}},
		{Name: "a start and an end are kept", Status: true, Was: was, Change: status(active, `{name: example.com/a, startTime: "2026-01-01T00:00:00Z", heartbeatTime: "2026-01-01T00:00:10Z"}`), Want: []string{
			`status.responders[0].completionTime: Invalid value: field cannot be cleared once set`, `status.responders[0].startTime: Invalid value: field cannot be modified once set`}},
		{Name: "a heartbeat does not go back", Status: true, Was: was,
			Change: status(active, `{name: example.com/a, startTime: "2025-12-31T23:50:00Z", heartbeatTime: "2026-01-01T00:00:00Z", completionTime: "2025-12-31T23:59:00Z"}`),
			Want:   []string{`status.responders[0].heartbeatTime: Invalid value: "2026-01-01T00:00:00Z": cannot be decreased`}},
		{Name: "a heartbeat stays", Status: true, Was: was,
			Change: status(active, `{name: example.com/a, startTime: "2025-12-31T23:50:00Z", completionTime: "2025-12-31T23:59:00Z"}`),
			Want:   []string{`status.responders[0].heartbeatTime: Required value: is required once set`}},
		{Name: "a heartbeat is after the start", Status: true, Change: status(`{name: example.com/a, priority: 1000, state: Active}`, `{name: example.com/a, heartbeatTime: "2026-01-01T00:00:00Z"}`), Want: []string{
			`status.responders[0].heartbeatTime: Invalid value: "2026-01-01T00:00:00Z": cannot be set before status.responders[0].startTime is set`,
			`status.responders[0].startTime: Required value: is required for an active responder`}},
	})
}

func TestResponders(t *testing.T) {
	priority := func(p int32) *int32 { return &p }
	var got []string
	for _, r := range inOrder([]lifecyclev1alpha1.TargetResponder{
		{Name: "b.com/a", Priority: priority(1)}, {Name: "z.a.com/b", Priority: priority(1)}, {Name: "a.com/b", Priority: priority(1)}, {Name: "a.com/a", Priority: priority(1)}, {Name: "z.org/a", Priority: priority(2)},
	}) {
		got = append(got, r.Name)
	}
	if want := []string{"z.org/a", "a.com/a", "a.com/b", "z.a.com/b", "b.com/a"}; !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
}
