package batch

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateJobConditionsAndTimes(t *testing.T) {
	const (
		start    = `startTime: "2024-05-01T12:00:00Z"`
		end      = `completionTime: "2024-05-01T13:00:00Z"`
		success  = `{type: SuccessCriteriaMet, status: "True"}`
		complete = `{type: Complete, status: "True"}`
		failing  = `{type: FailureTarget, status: "True"}`
		failed   = `{type: Failed, status: "True"}`
	)
	conditions := func(list string) string { return "conditions: [" + list + "]" }
	done := jobStatus(start + "," + end + "," + conditions(success+","+complete))
	dead := jobStatus(start + "," + conditions(failing+","+failed))
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "a job starts", Status: true, Change: jobStatus(start + ", active: 2, ready: 1")},
		{Name: "a job completes", Status: true, Was: jobStatus(start + ", active: 1"), Change: done},
		{Name: "a job fails", Status: true, Was: jobStatus(start + ", active: 1"), Change: dead},
		{Name: "complete excludes failed", Status: true, Change: jobStatus(start + "," + end + "," + conditions(complete+","+failed)), Want: []string{
			"status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
			"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
			"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
		}},
		{Name: "complete excludes a target of failure", Status: true, Change: jobStatus(start + "," + end + "," + conditions(success+","+complete+","+failing)), Want: []string{
			"status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions",
			"status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
		}},
		{Name: "what a failed job was, it stays", Status: true, Was: dead, Change: jobStatus(start), Want: []string{
			"status.conditions: Invalid value: cannot disable the terminal Failed=True condition",
			"status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
		}},
		{Name: "what a complete job was, it stays", Status: true, Was: done, Change: jobStatus(start), Want: []string{
			"status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
			"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
		}},
		{Name: "a complete job has a time of completion", Status: true, Change: jobStatus(start + "," + conditions(success+","+complete)), Want: []string{
			"status.completionTime: Required value: completionTime is required for Complete jobs",
		}},
		{Name: "only a complete job has a time of completion", Status: true, Change: jobStatus(start + "," + end), Want: []string{
			`status.completionTime: Invalid value: "2024-05-01T13:00:00Z": cannot set completionTime when there is no Complete=True condition`,
		}},
		{Name: "a job completes after its start", Status: true, Change: jobStatus(`startTime: "2024-05-01T14:00:00Z",` + end + "," + conditions(success+","+complete)), Want: []string{
			"status.completionTime: Invalid value: \"2024-05-01T13:00:00Z\": must be equal to or after `startTime`",
		}},
		{Name: "the time of completion is immutable", Status: true, Was: done, Change: jobStatus(start + `, completionTime: "2024-05-01T15:00:00Z",` + conditions(success+","+complete)), Want: []string{
			`status.completionTime: Invalid value: "2024-05-01T15:00:00Z": field is immutable`,
		}},
		{Name: "the time of start is immutable", Status: true, Was: jobStatus(start), Change: jobStatus(`startTime: "2024-05-01T11:00:00Z"`), Want: []string{
			`status.startTime: Invalid value: "2024-05-01T11:00:00Z": field is immutable for unsuspended job once set`,
		}},
		{Name: "a job that resumes starts again", Status: true,
			Was:    jobStatus(start + "," + conditions(`{type: Suspended, status: "True"}`)),
			Change: jobStatus(`startTime: "2024-05-01T16:00:00Z",` + conditions(`{type: Suspended, status: "False"}`))},
		{Name: "a finished job has started, and has no pods any more", Status: true,
			Change: jobStatus("active: 1, terminating: 2, uncountedTerminatedPods: {failed: [a]}," + conditions(failing+","+failed)), Want: []string{
				"status.startTime: Required value: startTime is required for finished job",
				"status.active: Invalid value: 1: active>0 is invalid for finished job",
				"status.terminating: Invalid value: 2: terminating>0 is invalid for finished job",
				`status.uncountedTerminatedPods: Invalid value: {"failed":["a"]}: must be empty for finished job`,
			}},
	})
}

func TestValidateJobCounters(t *testing.T) {
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "counters are not negative", Status: true, Change: jobStatus("active: -1, succeeded: -2, failed: -3, ready: -4, terminating: -5"), Want: []string{
			"status.active: Invalid value: -1: must be greater than or equal to 0",
			"status.succeeded: Invalid value: -2: must be greater than or equal to 0",
			"status.failed: Invalid value: -3: must be greater than or equal to 0",
			"status.ready: Invalid value: -4: must be greater than or equal to 0",
			"status.terminating: Invalid value: -5: must be greater than or equal to 0",
			"status.succeeded: Invalid value: -2: cannot decrease the succeeded counter",
			"status.failed: Invalid value: -3: cannot decrease the failed counter",
		}},
		{Name: "uncounted pods are named once", Status: true, Change: jobStatus(`uncountedTerminatedPods: {succeeded: [a, ""], failed: [a]}`), Want: []string{
			`status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty`,
			`status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"`,
		}},
		{Name: "ready pods are active", Status: true, Change: jobStatus("active: 1, ready: 2"), Want: []string{
			"status.ready: Invalid value: 2: cannot set more ready pods than active",
		}},
		{Name: "ready pods are compared if they are counted", Status: true, Change: jobStatus("active: -1"), Want: []string{
			"status.active: Invalid value: -1: must be greater than or equal to 0",
		}},
		{Name: "counters do not decrease", Status: true, Was: jobStatus("succeeded: 2, failed: 2"), Change: jobStatus("succeeded: 1, failed: 1"), Want: []string{
			"status.failed: Invalid value: 1: cannot decrease the failed counter",
			"status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
		}},
	})
}

func TestValidateJobIndexes(t *testing.T) {
	const indexed = "spec: {completionMode: Indexed, completions: 9, parallelism: 3, backoffLimitPerIndex: 1}"
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "indexes need the indexed mode", Status: true, Was: "{spec: {completions: 9}}", Change: `{spec: {completions: 9}, status: {completedIndexes: "1", failedIndexes: "2"}}`, Want: []string{
			`status.completedIndexes: Invalid value: "1": cannot set non-empty completedIndexes when non-indexed completion mode`,
			`status.failedIndexes: Invalid value: "2": cannot set non-null failedIndexes when backoffLimitPerIndex is null`,
		}},
		{Name: "indexes are well-formed", Status: true, Was: "{" + indexed + "}", Change: "{" + indexed + `, status: {completedIndexes: "1-2-3", failedIndexes: "x"}}`, Want: []string{
			`status.completedIndexes: Invalid value: "1-2-3": error parsing completedIndexes: the fragment "1-2-3" violates the requirement that an index interval can have at most two parts separated by '-'`,
			`status.failedIndexes: Invalid value: "x": error parsing failedIndexes: cannot convert string to integer for index: "x"`,
		}},
		{Name: "an index completes or fails", Status: true, Was: "{" + indexed + "}", Change: "{" + indexed + `, status: {completedIndexes: "0,3-5", failedIndexes: "1,5-6"}}`, Want: []string{
			`status.failedIndexes: Invalid value: "1,5-6": failedIndexes and completedIndexes overlap at index: 5`,
		}},
	})
}

// jobStatus is a change of the status.
func jobStatus(fields string) string { return "{status: {" + fields + "}}" }
