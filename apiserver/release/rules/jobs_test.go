package rules

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/component-base/featuregate"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

func TestTheStatusOfAJobFollowsAnOrderOnlyWithJobManagedBy(t *testing.T) {
	const (
		was    = `status: {startTime: "2024-01-01T00:00:00Z", active: 1, succeeded: 1}`
		status = `status: {startTime: "2024-01-01T00:00:00Z", active: 0, %s}`
		since  = 32 // the first release that has the gate on by default
	)
	for _, test := range []struct {
		change        string
		without, with []string // the gate
	}{
		// as kube-controller-manager 1.28 writes them
		{`succeeded: 2, completionTime: "2024-01-02T00:00:00Z", conditions: [{type: Complete, status: "True"}]`, nil,
			[]string{"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"}},
		{`failed: 1, conditions: [{type: Failed, status: "True"}]`, nil,
			[]string{"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"}},
		{`succeeded: 0`, nil, nil}, // the base is a job that scales
		{`completedIndexes: x`, nil,
			[]string{`status.completedIndexes: Invalid value: "x": error parsing completedIndexes: cannot convert string to integer for index: "x"`}},
		// as svc's controller writes it
		{`succeeded: 2, completionTime: "2024-01-02T00:00:00Z", conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]`, nil, nil},
		{`failed: -1, uncountedTerminatedPods: {failed: [""]}`,
			[]string{
				"status.failed: Invalid value: -1: must be greater than or equal to 0",
				`status.uncountedTerminatedPods.failed[0]: Invalid value: "": must not be empty`,
			},
			[]string{
				"status.failed: Invalid value: -1: must be greater than or equal to 0",
				`status.uncountedTerminatedPods.failed[0]: Invalid value: "": must not be empty`,
				"status.failed: Invalid value: -1: cannot decrease the failed counter",
			}},
		{`conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: FailureTarget, status: "True"}]`,
			[]string{"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
			[]string{"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"}},
	} {
		for r := releases.Oldest; r <= releases.Newest; r++ {
			for _, set := range []*bool{nil, ptr.To(true), ptr.To(false)} {
				k := kindNamed(t, "Job", r, "JobManagedBy", set)
				want := test.without
				if ptr.Deref(set, r >= since) {
					want = test.with
				}
				got := texts(k.ValidateStatus(resourcetest.Object(t, k, jobBase, fmt.Sprintf(status, test.change)), resourcetest.Object(t, k, jobBase, was)))
				if !slices.Equal(got, want) {
					t.Fatalf("%s at %v, gate %v:\n%q, want\n%q", test.change, r, set, got, want)
				}
			}
		}
	}
}

const (
	neverStarted = "{}"
	ranBefore    = `status: {startTime: "2024-01-01T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}`
	otherLabels  = `spec: {template: {metadata: {labels: {x: y}}}}`
	otherNotes   = `spec: {template: {metadata: {annotations: {x: y}}}}`
	otherName    = `spec: {template: {metadata: {name: x}}}`
)

// changes reports whether the template of the suspended job in state may change, with the gates
// that are enabled.
func changes(t *testing.T, enabled func(gate string) bool, state, change string) bool {
	t.Helper()
	k := *kinds()[slices.IndexFunc(kinds(), func(k *resource.Kind) bool { return k.Hub.Kind == "Job" })]
	k.Views = slices.Clone(k.Views)
	Apply(&k, enabled)
	got := messages(&k, resourcetest.Object(t, &k, jobBase, state, change), resourcetest.Object(t, &k, jobBase, state))
	if len(got) > 0 && !slices.Equal(got, []string{"spec.template: Invalid value: ...: field is immutable"}) {
		t.Fatalf("%s: %q", change, got)
	}
	return len(got) == 0
}

func TestMetadataOfTheTemplateOfASuspendedJobChangesAtReleases(t *testing.T) {
	for _, test := range []struct {
		state, change string
		since         releases.Release
	}{
		{neverStarted, otherLabels, 23},
		{neverStarted, otherNotes, 23},
		{neverStarted, otherName, 36},
		{ranBefore, otherLabels, 36},
		{ranBefore, otherNotes, 36},
		{ranBefore, otherName, 36},
	} {
		for r := releases.Oldest; r <= releases.Newest; r++ {
			set, err := featuregates.NewAt(r)
			if err != nil {
				t.Fatal(err)
			}
			enabled := func(gate string) bool { return set.Enabled(featuregate.Feature(gate)) }
			if got := changes(t, enabled, test.state, test.change); got != (r >= test.since) {
				t.Errorf("%s of a job with %s changes at %v: %t", test.change, test.state, r, got)
			}
		}
	}
}

func TestMetadataOfTheTemplateOfASuspendedJobChangesWithGates(t *testing.T) {
	const directives, other, resources = "JobMutableNodeSchedulingDirectives", "MutableSchedulingDirectivesForSuspendedJobs", "MutablePodResourcesForSuspendedJobs"
	for _, test := range []struct {
		on            []string
		state, change string
		want          bool
	}{
		{nil, neverStarted, otherLabels, false},
		{[]string{directives}, neverStarted, otherLabels, true},
		{[]string{directives}, ranBefore, otherLabels, false},
		{[]string{directives, other}, ranBefore, otherLabels, true},
		{[]string{directives, resources}, ranBefore, otherLabels, true},
		{[]string{directives, other}, neverStarted, otherName, false},
		{[]string{directives, other}, ranBefore, otherName, false},
		{[]string{directives, resources}, neverStarted, otherName, true},
		{[]string{directives, resources}, ranBefore, otherName, true},
	} {
		enabled := func(gate string) bool { return slices.Contains(test.on, gate) }
		if got := changes(t, enabled, test.state, test.change); got != test.want {
			t.Errorf("with %v, %s of a job with %s changes: %t", test.on, test.change, test.state, got)
		}
	}
}
