package scheduling

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

const notALabel = `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`

func TestWorkload(t *testing.T) {
	resourcetest.Rules(t, workloads, `
metadata: {name: training, namespace: default}
spec:
  podGroupTemplates:
  - {name: workers, schedulingPolicy: {gang: {minCount: 4}}}
`, []resourcetest.Rule{
		{Name: "a workload is accepted"},
		{Name: "templates of one kind are required", Change: `spec: {podGroupTemplates: null}`,
			Want: []string{"spec: Invalid value: \"\": must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`"}},
		{Name: "templates are of one kind", Change: `spec: {compositePodGroupTemplates: [{name: all, schedulingPolicy: {basic: {}}}]}`,
			Want: []string{"spec: Invalid value: \"{podGroupTemplates, compositePodGroupTemplates}\": must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`"}},
		{Name: "a policy is required", Change: `spec: {podGroupTemplates: [{name: workers}]}`,
			Want: []string{"spec.podGroupTemplates[0].schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`"}},
		{Name: "a count is positive", Change: `spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: -1}}}]}`,
			Want: []string{`spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1`}},
		{Name: "a count is required", Change: `spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {}}}]}`,
			Want: []string{`spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Required value`}},
		{Name: "names of templates are labels", Change: `spec: {podGroupTemplates: [{name: A, schedulingPolicy: {basic: {}}}]}`,
			Want: []string{`spec.podGroupTemplates[0].name: Invalid value: "A": ` + notALabel}},
		{Name: "names of templates differ", Change: `spec: {podGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}}, {name: a, schedulingPolicy: {basic: {}}}]}`,
			Want: []string{`spec.podGroupTemplates[1]: Duplicate value: "a"`}},
		{Name: "there are eight templates at most", Change: `spec: {podGroupTemplates: [{}, {}, {}, {}, {}, {}, {}, {}, {}]}`,
			Want: []string{`spec.podGroupTemplates: Too many: 9: must have at most 8 items`}},
		{Name: "a controller has a kind and a name", Change: `spec: {controllerRef: {apiGroup: A_B}}`, Want: []string{
			`spec.controllerRef.apiGroup: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`spec.controllerRef.kind: Required value`, `spec.controllerRef.name: Required value`}},
		{Name: "a topology has one key", Change: `spec: {podGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: ""}, {key: b}]}}]}`, Want: []string{
			`spec.podGroupTemplates[0].schedulingConstraints.topology: Too many: 2: must have at most 1 item`,
			`spec.podGroupTemplates[0].schedulingConstraints.topology[0].key: Required value`}},
		{Name: "a claim is one or of a template", Change: `spec: {podGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}, resourceClaims: [{name: b}]}]}`,
			Want: []string{"spec.podGroupTemplates[0].resourceClaims[0]: Invalid value: \"\": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"}},
		{Name: "a priority is a user's", Change: `spec: {podGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}, priority: 1000000001, preemptionPolicy: Always}]}`, Want: []string{
			`spec.podGroupTemplates[0].priority: Invalid value: 1000000001: must be less than or equal to 1000000000`,
			`spec.podGroupTemplates[0].preemptionPolicy: Unsupported value: "Always": supported values: "Never", "PreemptLowerPriority"`}},
		{Name: "all templates have one priority", Change: `spec: {podGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}, priority: 1}, {name: b, schedulingPolicy: {basic: {}}}]}`,
			Want: []string{`spec: Invalid value: detected multiple priority configurations`}},
		{Name: "a count may change", Update: true, Change: `spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 5}}}]}`},
		{Name: "a policy is kept", Update: true, Change: `spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {basic: {}}}]}`, Want: []string{
			`spec.podGroupTemplates[0].schedulingPolicy.basic: Invalid value: {}: field is immutable`,
			`spec.podGroupTemplates[0].schedulingPolicy.gang: Invalid value: field cannot be cleared once set`}},
		{Name: "templates are kept", Update: true, Change: `spec: {podGroupTemplates: [{name: others, schedulingPolicy: {basic: {}}}]}`, Want: []string{
			`spec.podGroupTemplates[0]: Forbidden: item may not be added`, `spec.podGroupTemplates: Forbidden: item may not be removed`}},
		{Name: "the rest of a template is kept", Update: true, Change: `spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 4}}, priorityClassName: high}]}`,
			Want: []string{`spec.podGroupTemplates[0].priorityClassName: Invalid value: "high": field is immutable`}},
		{Name: "the controller is kept", Update: true, Change: `spec: {controllerRef: {kind: A, name: a}}`,
			Want: []string{`spec.controllerRef: Invalid value: {"kind":"A","name":"a"}: field is immutable`}},
	})
}

func TestTemplatesInTemplates(t *testing.T) {
	resourcetest.Rules(t, workloads, `
metadata: {name: training, namespace: default}
spec:
  compositePodGroupTemplates:
  - name: all
    schedulingPolicy: {gang: {minGroupCount: 2}}
    podGroupTemplates: [{name: driver, schedulingPolicy: {basic: {}}}]
    compositePodGroupTemplates:
    - name: workers
      schedulingPolicy: {basic: {}}
      podGroupTemplates: [{name: worker, schedulingPolicy: {gang: {minCount: 4}}}]
`, []resourcetest.Rule{
		{Name: "templates in templates are accepted"},
		{Name: "names differ in all of them", Change: `
spec:
  compositePodGroupTemplates:
  - {name: all, schedulingPolicy: {basic: {}}, podGroupTemplates: [{name: all, schedulingPolicy: {basic: {}}}]}
`, Want: []string{`spec.compositePodGroupTemplates[0].podGroupTemplates[0].name: Duplicate value: "all"`}},
		{Name: "there are four levels at most", Change: `
spec:
  compositePodGroupTemplates:
  - name: a
    schedulingPolicy: {basic: {}}
    compositePodGroupTemplates:
    - name: b
      schedulingPolicy: {basic: {}}
      compositePodGroupTemplates:
      - name: c
        schedulingPolicy: {basic: {}}
        compositePodGroupTemplates: [{name: d, schedulingPolicy: {basic: {}}}]
`, Want: []string{`spec.compositePodGroupTemplates[0]: Invalid value: maximum template hierarchy depth is 4`}},
		{Name: "a count is required", Change: `spec: {compositePodGroupTemplates: [{name: all, schedulingPolicy: {gang: {}}, disruptionMode: {}}]}`, Want: []string{
			`spec.compositePodGroupTemplates[0].schedulingPolicy.gang.minGroupCount: Required value`,
			"spec.compositePodGroupTemplates[0].disruptionMode: Invalid value: \"\": must specify one of: `single`, `all`"}},
		{Name: "templates in templates are kept", Update: true, Change: `
spec:
  compositePodGroupTemplates:
  - name: all
    schedulingPolicy: {gang: {minGroupCount: 1}}
    podGroupTemplates: [{name: driver, schedulingPolicy: {basic: {}}}]
`, Want: []string{`spec.compositePodGroupTemplates[0].compositePodGroupTemplates: Forbidden: item may not be removed`}},
	})
}

func TestPodGroup(t *testing.T) {
	condition := `{type: PodGroupInitiallyScheduled, status: "True", reason: Scheduled, lastTransitionTime: "2026-01-02T03:04:05Z"}`
	resourcetest.Rules(t, podGroups, `
metadata: {name: workers, namespace: default}
spec:
  schedulingPolicy: {gang: {minCount: 4}}
  resourceClaims: [{name: gpus, resourceClaimTemplateName: gpus}]
`, []resourcetest.Rule{
		{Name: "a group is accepted"},
		{Name: "a reference is complete", Change: `spec: {workloadRef: {workloadName: training}}`, Want: []string{`spec.workloadRef.templateName: Required value`}},
		{Name: "a mode of disruption is one", Change: `spec: {disruptionMode: {single: {}, all: {}}}`,
			Want: []string{"spec.disruptionMode: Invalid value: \"{single, all}\": must specify exactly one of: `single`, `all`"}},
		{Name: "a count may change", Update: true, Change: `spec: {schedulingPolicy: {gang: {minCount: 5}}}`},
		{Name: "the workload is kept", Update: true, Change: `spec: {workloadRef: {workloadName: a, templateName: b}}`,
			Want: []string{`spec.workloadRef: Invalid value: {"workloadName":"a","templateName":"b"}: field is immutable`}},
		{Name: "claims are kept", Update: true, Change: `spec: {resourceClaims: null}`, Want: []string{`spec.resourceClaims: Invalid value: null: field is immutable`}},
		{Name: "a status has conditions", Status: true, Change: `status: {conditions: [` + condition + `], resourceClaimStatuses: [{name: gpus, resourceClaimName: gpus-1}]}`},
		{Name: "statuses are of claims", Status: true, Change: `status: {resourceClaimStatuses: [{name: disks}]}`,
			Want: []string{"status.resourceClaimStatuses[0].name: Invalid value: \"disks\": must match the name of an entry in `spec.resourceClaims`"}},
		{Name: "a condition is there once", Status: true, Change: `status: {conditions: [` + condition + `, ` + condition + `]}`,
			Want: []string{`status.conditions[1]: Duplicate value: "PodGroupInitiallyScheduled"`}},
	})
}

func TestCompositePodGroup(t *testing.T) {
	resourcetest.Rules(t, compositePodGroups, `
metadata: {name: all, namespace: default}
spec:
  workloadRef: {workloadName: training, templateName: all}
  schedulingPolicy: {gang: {minGroupCount: 2}}
`, []resourcetest.Rule{
		{Name: "a group is accepted"},
		{Name: "a workload is required", Change: `spec: {workloadRef: null}`, Want: []string{`spec.workloadRef: Required value`}},
		{Name: "a parent has a name", Change: `spec: {parentCompositePodGroupName: A}`, Want: []string{
			`spec.parentCompositePodGroupName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{Name: "the policy is kept", Update: true, Change: `spec: {schedulingPolicy: {gang: {minGroupCount: 3}}}`,
			Want: []string{`spec.schedulingPolicy: Invalid value: {"gang":{"minGroupCount":3}}: field is immutable`}},
		{Name: "the mode of disruption is kept", Update: true, Change: `spec: {disruptionMode: {single: null, all: {}}}`,
			Want: []string{`spec.disruptionMode: Invalid value: {"all":{}}: field is immutable`}},
	})
}
