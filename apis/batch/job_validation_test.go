package batch

import (
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateJob(t *testing.T) {
	const indexed = "{spec: {completionMode: Indexed, completions: 3, parallelism: 2}}"
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "a defaulted job is valid"},
		{Name: "an indexed job is valid", Change: indexed},
		{Name: "counts are not negative", Change: "{spec: {parallelism: -1, completions: -2, activeDeadlineSeconds: -3, backoffLimit: -4, ttlSecondsAfterFinished: -5}}", Want: []string{
			"spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
			"spec.completions: Invalid value: -2: must be greater than or equal to 0",
			"spec.activeDeadlineSeconds: Invalid value: -3: must be greater than or equal to 0",
			"spec.backoffLimit: Invalid value: -4: must be greater than or equal to 0",
			"spec.ttlSecondsAfterFinished: Invalid value: -5: must be greater than or equal to 0",
		}},
		{Name: "the completion mode is known", Change: "{spec: {completionMode: Sorted}}", Want: []string{
			`spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed"`,
		}},
		{Name: "an indexed job has completions", Change: "{spec: {completionMode: Indexed, parallelism: 2}}", Want: []string{
			"spec.completions: Required value: when completion mode is Indexed",
		}},
		{Name: "an indexed job has bounded parallelism", Change: "{spec: {completionMode: Indexed, completions: 3, parallelism: 100001}}", Want: []string{
			"spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
		}},
		{Name: "an indexed job's name leaves room for the index", Change: "{metadata: {name: " + strings.Repeat("a", 62) + "}, spec: {template: {metadata: {labels: {job-name: null, batch.kubernetes.io/job-name: null}}}, completionMode: Indexed, completions: 3}}", Want: []string{
			"metadata.name: Invalid value: \"" + strings.Repeat("a", 62) + "\": will not able to create pod with invalid DNS label: " + strings.Repeat("a", 62) + "-2",
		}},
		{Name: "limits per index need indexes", Change: "{spec: {backoffLimitPerIndex: 1, maxFailedIndexes: 1}}", Want: []string{
			"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
			"spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
		}},
		{Name: "maxFailedIndexes needs backoffLimitPerIndex", Change: "{spec: {completionMode: Indexed, completions: 3, maxFailedIndexes: 4}}", Want: []string{
			"spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
			"spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
		}},
		{Name: "many completions need a bound of failures", Change: "{spec: {completionMode: Indexed, completions: 100001, parallelism: 10001, backoffLimitPerIndex: 1}}", Want: []string{
			"spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
			"spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
		}},
		{Name: "managedBy is a domain with a path", Change: "{spec: {managedBy: example}}", Want: []string{
			`spec.managedBy: Invalid value: "example": must be a domain-prefixed path (such as "acme.io/foo")`,
		}},
		{Name: "managedBy is short", Change: "{spec: {managedBy: example.com/" + strings.Repeat("a", 60) + "}}", Want: []string{
			"spec.managedBy: Too long: may not be more than 63 bytes",
		}},
		{Name: "the client chooses a restart policy", Change: "{spec: {template: {spec: {restartPolicy: null}}}}", Want: []string{
			`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`,
		}},
		{Name: "pods are replaced at known times", Change: "{spec: {podReplacementPolicy: Soon}}", Want: []string{
			`spec.podReplacementPolicy: Unsupported value: "Soon": supported values: "Failed", "TerminatingOrFailed"`,
		}},
	})
}

func TestValidateJobSelector(t *testing.T) {
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "the server makes selector and labels", Change: "{spec: {selector: null, template: {metadata: null}}}"},
		{Name: "a label that the server makes is not the client's", Change: "{spec: {template: {metadata: {labels: {job-name: other}}}}}", Want: []string{
			`spec.template.metadata.labels[job-name]: Invalid value: {"batch.kubernetes.io/controller-uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","batch.kubernetes.io/job-name":"pi","controller-uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","job-name":"other"}: must be 'pi'`,
		}},
		{Name: "a selector of the client's needs manualSelector", Change: "{spec: {selector: {matchLabels: {app: pi}}, template: {metadata: {labels: {app: pi}}}}}", Want: []string{
			"spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"pi\",\"batch.kubernetes.io/controller-uid\":\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"}}: `selector` not auto-generated",
		}},
		{Name: "with manualSelector labels and selector are the client's", Change: "{spec: {manualSelector: true, selector: {matchLabels: {app: pi, batch.kubernetes.io/controller-uid: null}}, template: {metadata: {labels: {app: pi}}}}}"},
		{Name: "manualSelector needs a selector", Change: "{spec: {manualSelector: true, selector: null, template: {metadata: null}}}", Want: []string{
			"spec.selector: Required value",
			"spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
		}},
	})
}

func TestJobSelectsItsOwnPods(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "1234"}}
	selectOwnPods(t.Context(), nil, j)
	if want := map[string]string{"batch.kubernetes.io/controller-uid": "1234"}; !maps.Equal(j.Spec.Selector.MatchLabels, want) {
		t.Errorf("the selector is %v, want %v", j.Spec.Selector.MatchLabels, want)
	}
	want := map[string]string{
		"batch.kubernetes.io/controller-uid": "1234", "controller-uid": "1234",
		"batch.kubernetes.io/job-name": "pi", "job-name": "pi",
	}
	if !maps.Equal(j.Spec.Template.Labels, want) {
		t.Errorf("the template's labels are %v, want %v", j.Spec.Template.Labels, want)
	}
	// Clients select jobs by the labels of their pods.
	unlabeled := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "1234"}}
	unlabeled.Spec.Template.Labels = map[string]string{"app": "pi"}
	defaultJob(unlabeled)
	selectOwnPods(t.Context(), nil, unlabeled)
	want["app"] = "pi"
	if !maps.Equal(unlabeled.Labels, want) {
		t.Errorf("the labels of a job that has none of its own are %v, want %v", unlabeled.Labels, want)
	}
	labeled := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "1234", Labels: map[string]string{"app": "pi"}}}
	labeled.Spec.Template.Labels = map[string]string{"app": "pi"}
	defaultJob(labeled)
	if selectOwnPods(t.Context(), nil, labeled); len(labeled.Labels) != 1 {
		t.Errorf("the labels of a job with its own are %v", labeled.Labels)
	}
	manual := &batchv1.Job{Spec: batchv1.JobSpec{ManualSelector: ptr.To(true)}}
	if selectOwnPods(t.Context(), nil, manual); manual.Spec.Selector != nil || manual.Spec.Template.Labels != nil {
		t.Errorf("a manual selector was changed: %v", manual.Spec)
	}
}

func TestValidatePodFailurePolicy(t *testing.T) {
	rule := func(rule string) string {
		return "{spec: {completionMode: Indexed, completions: 3, podFailurePolicy: {rules: [" + rule + "]}}}"
	}
	const at = "spec.podFailurePolicy.rules[0]"
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "exit codes decide", Change: rule("{action: FailJob, onExitCodes: {operator: In, values: [1, 42], containerName: pi}}")},
		{Name: "conditions decide", Change: rule("{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}")},
		{Name: "the action is known", Change: rule("{action: Retry, onPodConditions: [{type: DisruptionTarget}]}"), Want: []string{
			at + `.action: Unsupported value: "Retry": supported values: "Count", "FailIndex", "FailJob", "Ignore"`,
		}},
		{Name: "FailIndex needs a limit per index", Change: rule("{action: FailIndex, onPodConditions: [{type: DisruptionTarget}]}"), Want: []string{
			at + `.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`,
		}},
		{Name: "a rule says when", Change: rule("{action: Count}"), Want: []string{
			at + ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
		}},
		{Name: "a rule says one when", Change: rule("{action: Count, onExitCodes: {operator: In, values: [1]}, onPodConditions: [{type: DisruptionTarget}]}"), Want: []string{
			at + ": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
		}},
		{Name: "exit codes are ordered, unique and failures", Change: rule("{action: Count, onExitCodes: {operator: In, values: [3, 3, 0]}}"), Want: []string{
			at + ".onExitCodes.values[1]: Duplicate value: 3",
			at + ".onExitCodes.values[2]: Invalid value: 0: must not be 0 for the In operator",
			at + ".onExitCodes.values: Invalid value: [3,3,0]: must be ordered",
		}},
		{Name: "exit codes are those of a container", Change: rule("{action: Count, onExitCodes: {operator: Like, values: [], containerName: web}}"), Want: []string{
			at + `.onExitCodes.operator: Unsupported value: "Like": supported values: "In", "NotIn"`,
			at + `.onExitCodes.containerName: Invalid value: "web": must be one of the container or initContainer names in the pod template`,
			at + ".onExitCodes.values: Invalid value: []: at least one value is required",
		}},
		{Name: "a condition has a type and a known status", Change: rule("{action: Count, onPodConditions: [{type: Ready, status: Maybe}]}"), Want: []string{
			at + `.onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"`,
		}},
		{Name: "a failure policy needs pods that do not restart", Change: "{spec: {podFailurePolicy: {rules: []}, template: {spec: {restartPolicy: OnFailure}}}}", Want: []string{
			`spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified`,
		}},
		{Name: "a failure policy replaces failed pods only", Change: "{spec: {podFailurePolicy: {rules: []}, podReplacementPolicy: TerminatingOrFailed}}", Want: []string{
			`spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`,
		}},
	})
}

func TestValidateSuccessPolicy(t *testing.T) {
	rules := func(rules string) string {
		return "{spec: {completionMode: Indexed, completions: 8, successPolicy: {rules: [" + rules + "]}}}"
	}
	const at = "spec.successPolicy.rules"
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "indexes or a count decide", Change: rules(`{succeededIndexes: "0-3,5", succeededCount: 4}, {succeededCount: 8}`)},
		{Name: "a success policy needs indexes", Change: "{spec: {successPolicy: {rules: []}}}", Want: []string{
			`spec.successPolicy: Invalid value: {"rules":[]}: requires indexed completion mode`,
		}},
		{Name: "without completions there is nothing to compare", Change: "{spec: {completionMode: Indexed, parallelism: 1, successPolicy: {rules: [{succeededCount: 1}]}}}", Want: []string{
			"spec.completions: Required value: when completion mode is Indexed",
		}},
		{Name: "there are rules", Change: rules(""), Want: []string{at + ": Required value: at least one rules must be specified when the successPolicy is specified"}},
		{Name: "a rule says what", Change: rules("{}"), Want: []string{at + "[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"}},
		{Name: "indexes ascend", Change: rules(`{succeededIndexes: "3,1"}`), Want: []string{
			at + `[0].succeededIndexes: Invalid value: "3,1": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1`,
		}},
		{Name: "indexes are below completions", Change: rules(`{succeededIndexes: "0-8"}`), Want: []string{
			at + `[0].succeededIndexes: Invalid value: "0-8": error parsing succeededIndexes: too large index: "8"`,
		}},
		{Name: "a count does not exceed its indexes or completions", Change: rules(`{succeededIndexes: "0-1", succeededCount: 3}, {succeededCount: 9}`), Want: []string{
			at + "[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
			at + "[1].succeededCount: Invalid value: 9: must be less than or equal to 8 (the number of specified completions)",
		}},
	})
}
