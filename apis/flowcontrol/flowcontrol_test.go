package flowcontrol

import (
	"testing"

	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

// The server makes these objects itself; a rule that refused one of them, or
// a default that changed it, would keep flow control from starting.
func TestBootstrapObjectsAreValid(t *testing.T) {
	schemas, levels := flowSchemas.Kind(), priorityLevels.Kind()
	for _, fs := range append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...) {
		fs = fs.DeepCopy()
		schemas.Default(fs)
		if errs := schemas.Validate(fs); len(errs) > 0 {
			t.Errorf("flow schema %s: %v", fs.Name, errs.ToAggregate())
		}
	}
	for _, pl := range append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...) {
		pl = pl.DeepCopy()
		levels.Default(pl)
		if errs := levels.Validate(pl); len(errs) > 0 {
			t.Errorf("priority level %s: %v", pl.Name, errs.ToAggregate())
		}
	}
}

func TestFlowSchema(t *testing.T) {
	resourcetest.Rules(t, flowSchemas, `
metadata: {name: robots}
spec:
  priorityLevelConfiguration: {name: workload-low}
  matchingPrecedence: 500
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {name: "*", namespace: robots}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"]}]
    nonResourceRules: [{verbs: [get], nonResourceURLs: [/healthz, /logs/*]}]
`, []resourcetest.Rule{
		{Name: "a schema is accepted"},
		{Name: "precedence is positive", Change: `spec: {matchingPrecedence: -1}`,
			Want: []string{`spec.matchingPrecedence: Invalid value: -1: must be a positive value`}},
		{Name: "precedence ends at 10000", Change: `spec: {matchingPrecedence: 10001}`,
			Want: []string{`spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000`}},
		{Name: "precedence 1 is the exempt schema's", Change: `spec: {matchingPrecedence: 1}`,
			Want: []string{`spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1`}},
		{Name: "flows are told apart by user or namespace", Change: `spec: {distinguisherMethod: {type: ByMoon}}`,
			Want: []string{`spec.distinguisherMethod.type: Unsupported value: "ByMoon": supported values: "ByNamespace", "ByUser"`}},
		{Name: "a level is required", Change: `spec: {priorityLevelConfiguration: {name: ""}}`,
			Want: []string{`spec.priorityLevelConfiguration.name: Required value: must reference a priority level`}},
		{Name: "rules have subjects and something to match", Change: `spec: {rules: [{subjects: []}]}`, Want: []string{
			`spec.rules[0].subjects: Required value: subjects must contain at least one value`,
			`spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty`}},
		{Name: "a subject has the member of its kind only",
			Change: `spec: {rules: [{subjects: [{kind: User, group: {name: g}}], nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]}]}`, Want: []string{
				`spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'`,
				`spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'`}},
		{Name: "'*' stands alone and verbs are known",
			Change: `spec: {rules: [{subjects: [{kind: User, user: {name: u}}], resourceRules: [{verbs: [fetch], apiGroups: ["*", apps], resources: [], clusterScope: true}]}]}`, Want: []string{
				`spec.rules[0].resourceRules[0].verbs: Unsupported value: ["fetch"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"`,
				`spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","apps"]: if '*' is present, must not specify other api groups`,
				`spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource`}},
		{Name: "URLs are paths", Change: `spec: {rules: [{subjects: [{kind: User, user: {name: u}}], nonResourceRules: [{verbs: [get], nonResourceURLs: [x, /a//b, /a*]}]}]}`, Want: []string{
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "x": must start with slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a//b": must not contain double slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: "/a*": wildcard can only do suffix matching`}},
		{Name: "conditions have types, each once", Status: true, Change: `status: {conditions: [{type: A}, {type: A}, {}]}`, Want: []string{
			`status.conditions[1].type: Duplicate value: "A"`, `status.conditions[2].type: Required value`}},
	})
}

func TestPriorityLevelConfiguration(t *testing.T) {
	resourcetest.Rules(t, priorityLevels, `
metadata: {name: robots}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 10
    limitResponse: {type: Queue, queuing: {queues: 64, handSize: 6, queueLengthLimit: 50}}
`, []resourcetest.Rule{
		{Name: "a limited level is accepted"},
		{Name: "zero shares are accepted", Change: `spec: {limited: {nominalConcurrencyShares: 0}}`},
		{Name: "shares are not negative", Change: `spec: {limited: {nominalConcurrencyShares: -1}}`,
			Want: []string{`spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer`}},
		{Name: "percentages have bounds", Change: `spec: {limited: {lendablePercent: 101, borrowingLimitPercent: -1}}`, Want: []string{
			`spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive`,
			`spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer`}},
		{Name: "the type is required", Change: `spec: {type: ""}`, Want: []string{`spec.type: Required value`}},
		{Name: "only 'exempt' is exempt", Change: `spec: {type: Exempt}`, Want: []string{
			"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
			`spec.limited: Forbidden: must be nil if the type is not Limited`}},
		{Name: "a limited level says how", Change: `spec: {limited: null}`,
			Want: []string{`spec.limited: Required value: must not be empty when type is Limited`}},
		{Name: "a level that rejects has no queues", Change: `spec: {limited: {limitResponse: {type: Reject}}}`,
			Want: []string{`spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited`}},
		{Name: "a hand is not larger than the deck", Change: `spec: {limited: {limitResponse: {queuing: {queues: 4, handSize: 5}}}}`,
			Want: []string{`spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)`}},
		{Name: "a hand fits into the hash", Change: `spec: {limited: {limitResponse: {queuing: {queues: 512, handSize: 8}}}}`,
			Want: []string{`spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60`}},
		{Name: "the betas' mark is refused", Change: `metadata: {annotations: {flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares: ""}}`,
			Want: []string{`metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden`}},
	})
	resourcetest.Rules(t, priorityLevels, `
metadata: {name: exempt}
spec: {type: Exempt, exempt: {}}
`, []resourcetest.Rule{
		{Name: "the exempt level is accepted"},
		{Name: "the exempt level may lend", Change: `spec: {exempt: {nominalConcurrencyShares: 5, lendablePercent: 50}}`},
	})
}
