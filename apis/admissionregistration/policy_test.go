package admissionregistration

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource/resourcetest"
)

var rootPath = field.NewPath("r")

// syntaxError is the compiler's answer to "((".
const syntaxError = "compilation failed: ERROR: <input>:1:3: Syntax error: mismatched input '<EOF>' expecting " +
	"{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | ((\n | ..^"

func TestValidatingAdmissionPolicy(t *testing.T) {
	resourcetest.Rules(t, validatingAdmissionPolicies, `
metadata: {name: replicas.example.com}
spec:
  paramKind: {apiVersion: rules.example.com/v1, kind: ReplicaLimit}
  matchConstraints:
    resourceRules: [{operations: [CREATE, DELETE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  variables: [{name: count, expression: object.spec.replicas}]
  validations: [{expression: variables.count <= params.max, messageExpression: '"no"', reason: Invalid}]
  auditAnnotations: [{key: high, valueExpression: '"yes"'}]
`, []resourcetest.Rule{
		{Name: "a policy is accepted"},
		{Name: "what it matches is required", Change: `spec: {matchConstraints: null}`, Want: []string{`spec.matchConstraints: Required value`}},
		{Name: "it matches resources", Change: `spec: {matchConstraints: {resourceRules: []}}`, Want: []string{`spec.matchConstraints.resourceRules: Required value`}},
		{Name: "it does something", Change: `spec: {validations: null, auditAnnotations: null}`, Want: []string{
			`spec.validations: Required value: validations or auditAnnotations must contain at least one item`,
			`spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item`}},
		{Name: "validations have expressions, one-line messages and known reasons", Change: `spec: {validations: [{expression: " ", message: "a\nb", reason: Teapot}]}`, Want: []string{
			`spec.validations[0].expression: Required value: expression is not specified`,
			`spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks`,
			`spec.validations[0].reason: Unsupported value: "Teapot": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`}},
		{Name: "variables have names that CEL can say", Change: `spec: {variables: [{name: for, expression: "1"}, {name: a-b, expression: ""}], validations: [{expression: "true"}]}`, Want: []string{
			`spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier`,
			`spec.variables[1].name: Invalid value: "a-b": must be a valid CEL identifier`,
			`spec.variables[1].expression: Required value: expression is not specified`}},
		{Name: "the parameters' kind is one", Change: `spec: {paramKind: {apiVersion: "a/b/c", kind: "9"}}`, Want: []string{
			`spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
			`spec.paramKind.kind: Invalid value: "9": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		{Name: "audit keys are unique", Change: `spec: {auditAnnotations: [{key: a, valueExpression: '"x"'}, {key: a, valueExpression: '"x"'}]}`,
			Want: []string{`spec.auditAnnotations[1].key: Duplicate value: "a"`}},
		{Name: "expressions compile, to the type of their field", Change: `spec: {
			matchConditions: [{name: a, expression: "(("}, {name: b, expression: "variables.count"}],
			variables: [{name: k, expression: "1 +"}, {name: m, expression: "1"}],
			validations: [{expression: "variables.m", messageExpression: "authorizer"}],
			auditAnnotations: [{key: a, valueExpression: "1"}]}`, Want: []string{
			`spec.matchConditions[0].expression: Invalid value: "((": ` + syntaxError,
			`spec.matchConditions[1].expression: Invalid value: "variables.count": ` +
				"compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.count\n | ^",
			`spec.variables[0].expression: Invalid value: "1 +": ` +
				"compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
			`spec.validations[0].expression: Invalid value: "variables.m": must evaluate to bool but got int`,
			`spec.validations[0].messageExpression: Invalid value: "authorizer": ` +
				"compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n | authorizer\n | ^",
			`spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] but got int`}},
		{Name: "match conditions use the parameters", Change: `spec: {matchConditions: [{name: a, expression: params.on == true}]}`},
		{Name: "which exist in policies with a kind of parameters only", Change: `spec: {paramKind: null, matchConditions: [{name: a, expression: params.on}], validations: [{expression: "true"}]}`,
			Want: []string{`spec.matchConditions[0].expression: Invalid value: "params.on": ` +
				"compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.on\n | ^"}},
		{Name: "variables exist in policies with variables only", Change: `spec: {variables: null, auditAnnotations: null, validations: [{expression: "variables.k"}]}`,
			Want: []string{`spec.validations[0].expression: Invalid value: "variables.k": ` +
				"compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.k\n | ^"}},
		{Name: "a policy with invalid expressions keeps them", Update: true,
			Was:    `spec: {matchConditions: [{name: a, expression: "(("}], validations: [{expression: "(("}]}`,
			Change: `{metadata: {labels: {a: b}, resourceVersion: "1"}, spec: {matchConditions: [{name: a, expression: "(("}], validations: [{expression: "((", message: new}]}}`},
		{Name: "and is not given others", Update: true,
			Was:    `spec: {matchConditions: [{name: a, expression: "(("}]}`,
			Change: `spec: {matchConditions: [{name: a, expression: "(("}], validations: [{expression: "(("}]}`,
			Want:   []string{`spec.validations[0].expression: Invalid value: "((": ` + syntaxError}},
		{Name: "status warnings say what and where", Status: true, Change: `status: {typeChecking: {expressionWarnings: [{}]}}`, Want: []string{
			`status.typeChecking.expressionWarnings[0].warning: Required value`,
			`status.typeChecking.expressionWarnings[0].fieldRef: Required value`}},
	})
}

func TestValidatingAdmissionPolicyBinding(t *testing.T) {
	resourcetest.Rules(t, validatingAdmissionPolicyBindings, `
metadata: {name: b}
spec:
  policyName: replicas.example.com
  paramRef: {name: limit, namespace: default, parameterNotFoundAction: Deny}
  validationActions: [Deny, Audit]
`, []resourcetest.Rule{
		{Name: "a binding is accepted"},
		{Name: "the policy is required", Change: `spec: {policyName: ""}`, Want: []string{`spec.policyName: Required value`}},
		{Name: "an action is required", Change: `spec: {validationActions: []}`, Want: []string{`spec.validationActions: Required value: at least one validation action is required`}},
		{Name: "denying and warning exclude each other", Change: `spec: {validationActions: [Deny, Warn]}`, Want: []string{
			`spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)`}},
		{Name: "actions are known and unique", Change: `spec: {validationActions: [Audit, Audit, Shout]}`, Want: []string{
			`spec.validationActions[1]: Duplicate value: "Audit"`,
			`spec.validationActions[2]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn"`}},
		{Name: "parameters are found by name or by selector", Change: `spec: {paramRef: {selector: {}}}`, Want: []string{
			`spec.paramRef.name: Forbidden: name and selector are mutually exclusive`,
			`spec.paramRef.selector: Forbidden: name and selector are mutually exclusive`}},
		{Name: "parameters say what happens without them", Change: `spec: {paramRef: {name: "", parameterNotFoundAction: null}}`, Want: []string{
			`spec.paramRef: Required value: one of name or selector must be specified`,
			`spec.paramRef.parameterNotFoundAction: Required value`}},
	})
}

func TestMutatingAdmissionPolicy(t *testing.T) {
	resourcetest.Rules(t, mutatingAdmissionPolicies, `
metadata: {name: sidecar.example.com}
spec:
  matchConstraints:
    resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/labels"}]'}}]
  reinvocationPolicy: Never
`, []resourcetest.Rule{
		{Name: "a policy is accepted"},
		{Name: "mutations are required", Change: `spec: {mutations: []}`, Want: []string{`spec.mutations: Required value: mutations must contain at least one item`}},
		{Name: "expressions compile, to the type of their field",
			Change: `spec: {variables: [{name: a, expression: "(("}], mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}, {patchType: ApplyConfiguration, applyConfiguration: {expression: "1"}}]}`,
			Want: []string{
				`spec.variables[0].expression: Invalid value: "((": ` + syntaxError,
				`spec.mutations[0].jsonPatch.expression: Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)`,
				`spec.mutations[1].applyConfiguration.expression: Invalid value: "1": must evaluate to Object but got int`}},
		{Name: "a policy with an invalid expression keeps it", Update: true,
			Was:    `spec: {mutations: [{patchType: JSONPatch, jsonPatch: {expression: "(("}}]}`,
			Change: `{metadata: {labels: {a: b}}, spec: {mutations: [{patchType: JSONPatch, jsonPatch: {expression: "(("}}]}}`},
		{Name: "the reinvocation policy is required", Change: `spec: {reinvocationPolicy: ""}`, Want: []string{`spec.reinvocationPolicy: Required value`}},
		{Name: "a mutation has the member of its type only", Change: `spec: {mutations: [{patchType: ApplyConfiguration, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/labels"}]'}}]}`, Want: []string{
			`spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration`,
			`spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration`}},
		{Name: "deletions have nothing to change", Change: `spec: {matchConstraints: {resourceRules: [{operations: [DELETE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}}`,
			Want: []string{`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`}},
	})
}
