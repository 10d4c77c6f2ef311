package batch

import (
	"strings"
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateJobUpdate(t *testing.T) {
	name61 := strings.Repeat("a", 61)
	longName := "{metadata: {name: " + name61 + "}"
	const (
		indexed       = "completionMode: Indexed, completions: 3, parallelism: 3"
		suspended     = "{spec: {suspend: true}}"
		scheduling    = "{spec: {suspend: true, template: {metadata: {labels: {queue: a}}, spec: {nodeSelector: {disk: ssd}, tolerations: [{key: gpu, operator: Exists}], affinity: {nodeAffinity: {}}}}}}"
		withResources = `{spec: {suspend: true, template: {spec: {containers: [{name: pi, image: "perl:5.40", command: [perl, -Mbignum=bpi, -wle, print bpi(2000)], resources: {requests: {cpu: 1}}}]}}}}`
	)
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "an unchanged job is valid", Update: true},
		{Name: "parallelism, deadline, backoff and suspension may change", Update: true, Change: "{spec: {completions: 1, parallelism: 5, activeDeadlineSeconds: 60, backoffLimit: 1, suspend: true, ttlSecondsAfterFinished: 3}}"},
		{Name: "completions are immutable", Update: true, Change: "{spec: {completions: 2}}", Was: "{spec: {completions: 1}}", Want: []string{
			"spec.completions: Invalid value: 2: field is immutable",
		}},
		{Name: "an indexed job scales", Update: true, Change: "{spec: {completionMode: Indexed, completions: 5, parallelism: 5}}", Was: "{spec: {" + indexed + "}}"},
		{Name: "an indexed job scales with its parallelism only", Update: true, Change: "{spec: {completionMode: Indexed, completions: 5, parallelism: 3}}", Was: "{spec: {" + indexed + "}}", Want: []string{
			"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism",
		}},
		{Name: "mode, policies, limits and manager are immutable", Update: true,
			Change: "{spec: {" + indexed + ", backoffLimitPerIndex: 1, managedBy: example.com/queue, successPolicy: {rules: [{succeededCount: 1}]}}}",
			Was:    "{spec: {completions: 3, parallelism: 3}}",
			Want: []string{
				`spec.completionMode: Invalid value: "Indexed": field is immutable`,
				"spec.backoffLimitPerIndex: Invalid value: 1: field is immutable",
				`spec.managedBy: Invalid value: "example.com/queue": field is immutable`,
				`spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: field is immutable`,
			}},
		{Name: "an indexed job does not scale to host names that are too long", Update: true,
			Change: longName + ", spec: {completionMode: Indexed, completions: 11, parallelism: 11}}",
			Was:    longName + ", spec: {completionMode: Indexed, completions: 10, parallelism: 10}}",
			Want:   []string{"metadata.name: Invalid value: \"" + name61 + "\": will not able to create pod with invalid DNS label: " + name61 + "-10"}},
		{Name: "an update may leave out manualSelector", Update: true,
			Change: "{spec: {selector: {matchLabels: {app: pi, batch.kubernetes.io/controller-uid: null}}, template: {metadata: {labels: {app: pi, job-name: null}}}}}",
			Was:    "{spec: {manualSelector: true, selector: {matchLabels: {app: pi, batch.kubernetes.io/controller-uid: null}}, template: {metadata: {labels: {app: pi, job-name: null}}}}}"},
		{Name: "an update keeps the selector, and labels that it selects", Update: true,
			Change: "{spec: {suspend: true, template: {metadata: {labels: {batch.kubernetes.io/controller-uid: null}}}}}", Was: suspended, Want: []string{
				`spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/job-name":"pi","controller-uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","job-name":"pi"}: ` + "`selector` does not match template `labels`",
			}},
		{Name: "a suspended job may be told where its pods run", Update: true, Change: scheduling, Was: suspended},
		{Name: "a suspended job may be told what resources its pods get", Update: true, Change: withResources, Was: suspended},
		{Name: "a job that was suspended again may be, too", Update: true, Change: scheduling, Was: `{spec: {suspend: true}, status: {startTime: "2024-05-01T12:00:00Z", conditions: [{type: Suspended, status: "True"}]}}`},
	})
}

func TestJobTemplateIsImmutable(t *testing.T) {
	for _, test := range []struct{ rule, was, change, field string }{
		{"while it runs", "{}", "{spec: {template: {spec: {nodeSelector: {disk: ssd}}}}}", "spec.template"},
		{"while pods of a suspended job run", "{spec: {suspend: true}, status: {active: 1}}", "{spec: {suspend: true, template: {spec: {nodeSelector: {disk: ssd}}}}}", "spec.template"},
		{"once a job has started", `{spec: {suspend: true}, status: {startTime: "2024-05-01T12:00:00Z"}}`, "{spec: {suspend: true, template: {spec: {nodeSelector: {disk: ssd}}}}}", "spec.template"},
		{"in what is not scheduling", "{spec: {suspend: true}}", "{spec: {suspend: true, template: {spec: {hostNetwork: true}}}}", "spec.template.spec"},
		{"in the affinity to pods", "{spec: {suspend: true}}", "{spec: {suspend: true, template: {spec: {affinity: {podAffinity: {}}}}}}", "spec.template.spec"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			k, base := jobs.Kind(), input(t, "jobs/minimal")
			errs := k.ValidateUpdate(resourcetest.Object(t, k, base, test.change), resourcetest.Object(t, k, base, test.was))
			if len(errs) != 1 || errs[0].Field != test.field || errs[0].Detail != "field is immutable" {
				t.Errorf("got %v, want that %s is immutable", errs, test.field)
			}
		})
	}
}
