package batch

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateSchedulingOfJobs(t *testing.T) {
	scheduling := func(s string) string {
		return "{spec: {parallelism: 3, template: {spec: {restartPolicy: Never}}, scheduling: " + s + "}}"
	}
	gang := scheduling("{schedulingPolicy: {gang: {minCount: 2}}}")
	resourcetest.Rules(t, jobs, input(t, "jobs/minimal"), []resourcetest.Rule{
		{Name: "a policy is basic by default", Change: scheduling("{}")},
		{Name: "a gang needs no more pods than run in parallel", Change: scheduling("{schedulingPolicy: {gang: {minCount: 4}}}"), Want: []string{
			"spec.scheduling.schedulingPolicy.gang.minCount: Invalid value: 4: must not be greater than parallelism (3)"}},
		{Name: "a gang of all pods", Change: scheduling("{schedulingPolicy: {gang: {}}}")},
		{Name: "a count is positive", Change: scheduling("{schedulingPolicy: {gang: {minCount: 0}}}"), Want: []string{
			"spec.scheduling.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1"}},
		{Name: "there is one policy", Change: scheduling("{schedulingPolicy: {basic: {}, gang: {}}}"), Want: []string{
			"spec.scheduling.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`"}},
		{Name: "pods without a gang are disrupted one by one", Change: scheduling("{disruptionMode: {all: {}}}"), Want: []string{
			"spec.scheduling.disruptionMode: Invalid value: \"\": the disruptionMode `all` is not supported with the Basic scheduling policy"}},
		{Name: "claims have different names", Change: scheduling("{resourceClaims: [{name: a, resourceClaimName: x}, {name: a, resourceClaimName: y}]}"), Want: []string{
			`spec.scheduling.resourceClaims[1]: Duplicate value: "a"`}},
		{Name: "there are four claims at most", Change: scheduling("{resourceClaims: [{name: a, resourceClaimName: x}, {name: b, resourceClaimName: x}, {name: c, resourceClaimName: x}, {name: d, resourceClaimName: x}, {name: e, resourceClaimName: x}]}"), Want: []string{
			"spec.scheduling.resourceClaims: Too many: 5: must have at most 4 items"}},
		{Name: "a count may change", Update: true, Was: gang, Change: scheduling("{schedulingPolicy: {gang: {minCount: 3}}}")},
		{Name: "a policy stays", Update: true, Was: gang, Change: scheduling("{schedulingPolicy: {basic: {}}}"), Want: []string{
			"spec.scheduling.schedulingPolicy: Invalid value: the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may be updated"}},
		{Name: "scheduling is not set later", Update: true, Was: "{spec: {parallelism: 3, template: {spec: {restartPolicy: Never}}}}", Change: gang, Want: []string{
			"spec.scheduling: Invalid value: null: field cannot be set once created"}},
		{Name: "a mode stays", Update: true, Was: scheduling("{schedulingPolicy: {gang: {}}, disruptionMode: {all: {}}}"), Change: scheduling("{schedulingPolicy: {gang: {}}, disruptionMode: {single: {}}}"), Want: []string{
			"spec.scheduling.disruptionMode: Invalid value: {\"single\":{}}: field is immutable"}},
	})
}
