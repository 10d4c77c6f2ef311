package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource/resourcetest"
)

const oldEvent = `
metadata: {name: a.1, namespace: default}
involvedObject: {kind: Pod, name: a, namespace: default}
reason: Started
message: " hello "
type: Normal
source: {component: kubelet, host: node-1}
count: 3
firstTimestamp: "2024-01-01T00:00:00Z"
lastTimestamp: "2024-01-02T00:00:00Z"
`

const newEvent = `
metadata: {name: a.1, namespace: default}
involvedObject: {kind: Pod, name: a, namespace: default}
reason: Started
message: hello
type: Normal
eventTime: "2024-01-01T00:00:00.000001Z"
action: Start
reportingComponent: svc.dev/svclet
reportingInstance: svclet-1
`

func TestEventRules(t *testing.T) {
	resourcetest.Rules(t, events, oldEvent, []resourcetest.Rule{
		{Name: "an event of the old style"},
		{Name: "a name only has to fit into a URL", Change: `metadata: {name: A_b:c}`},
		{Name: "an event lives in the namespace of its object", Change: `involvedObject: {namespace: other}`,
			Want: []string{`involvedObject.namespace: Invalid value: "other": does not match event.namespace`}},
		{Name: "an event of an object without a namespace lives in default", Change: `involvedObject: {namespace: null}`},
		{Name: "and nowhere else", Change: `{metadata: {namespace: other}, involvedObject: {namespace: null}}`,
			Want: []string{`involvedObject.namespace: Invalid value: "": does not match event.namespace`}},
	})
	resourcetest.Rules(t, events, newEvent, []resourcetest.Rule{
		{Name: "an event of the new style"},
		{Name: "says who reports what", Change: `{action: null, reason: null, reportingComponent: null, reportingInstance: null}`, Want: []string{
			"action: Required value", "reason: Required value", "reportingComponent: Required value", "reportingInstance: Required value",
			`reportingComponent: Invalid value: "": name part must be non-empty`,
			`reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},
		{Name: "of an object without a namespace may live in kube-system", Change: `{metadata: {namespace: kube-system}, involvedObject: {namespace: null}}`},
	})
}

func TestEventRulesOfEventsV1(t *testing.T) {
	k := events.Kind()
	validate := func(change, was string) field.ErrorList {
		obj := resourcetest.Object(t, k, newEvent, change)
		var old runtime.Object
		if was != "" {
			old = resourcetest.Object(t, k, newEvent, was)
		}
		return validateEventV1(obj, old)
	}
	for _, test := range []struct {
		rule, change, was string
		want              []string
	}{
		{rule: "a complete event", change: "{}"},
		{rule: "a name is a DNS subdomain", change: `metadata: {name: A_b}`, want: []string{
			`metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{rule: "a prefix of names is one, too", change: `metadata: {generateName: A_b}`, want: []string{
			`metadata.generateName: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{rule: "a finalizer names a domain", change: `metadata: {finalizers: [orphan, a.b, example.com/mine]}`, want: []string{
			`metadata.finalizers[1]: Invalid value: "a.b": name is neither a standard finalizer name nor is it fully qualified`}},
		{rule: "on update too", change: `metadata: {finalizers: [mine]}`, was: "{}", want: []string{
			`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
		{rule: "eventTime is required", change: "eventTime: null", want: []string{"eventTime: Required value"}},
		{rule: "the type is Normal or Warning", change: "type: Other", want: []string{`type: Invalid value: "": has invalid value: Other`}},
		{rule: "the controller goes by its own name", change: "reportingComponent: a b", want: []string{
			`reportingController: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`}},
		{rule: "deprecated fields stay unset", change: `{count: 2, source: {host: a}, firstTimestamp: "2024-01-01T00:00:00Z", lastTimestamp: "2024-01-01T00:00:00Z"}`, want: []string{
			`firstTimestamp: Invalid value: "": needs to be unset`, `lastTimestamp: Invalid value: "": needs to be unset`,
			`count: Invalid value: "": needs to be unset`, `source: Invalid value: "": needs to be unset`}},
		{rule: "a series has at least two", change: `series: {count: 1}`, want: []string{
			`series.count: Invalid value: "": should be at least 2`, "series.lastObservedTime: Required value"}},
		{rule: "a series may grow", change: `series: {count: 3, lastObservedTime: "2024-01-01T00:00:00.000002Z"}`, was: `series: {count: 2, lastObservedTime: "2024-01-01T00:00:00.000001Z"}`},
		{rule: "all else is immutable", change: `{reason: Stopped, message: bye}`, was: "{}", want: []string{
			`reason: Invalid value: "Stopped": field is immutable`, `message: Invalid value: "bye": field is immutable`}},
	} {
		t.Run(test.rule, func(t *testing.T) { resourcetest.Errors(t, validate(test.change, test.was), test.want...) })
	}
}

func TestEventInASeriesWasLastSeenWithIt(t *testing.T) {
	e := resourcetest.Object(t, events.Kind(), newEvent, `series: {count: 5, lastObservedTime: "2024-03-01T00:00:00.000000Z"}`).(*corev1.Event)
	if got := eventLastSeen(e).UTC().Format("01-02"); got != "03-01" || eventCount(e) != int64(5) {
		t.Errorf("a series was last seen on %s, %v times", got, eventCount(e))
	}
}
