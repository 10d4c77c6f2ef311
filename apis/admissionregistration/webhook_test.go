package admissionregistration

import (
	"strings"
	"testing"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

const rules = `rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`

// hooks are webhooks of which the fields in a change ("name: value; ...")
// differ from a valid one's.
func hooks(changes ...string) string {
	var list []string
	for _, change := range changes {
		fields := map[string]string{
			"name":                    "pods.example.com",
			"sideEffects":             "None",
			"admissionReviewVersions": "[v1]",
			"clientConfig":            "{service: {name: hook, namespace: default}}",
			"rules":                   strings.TrimPrefix(rules, "rules: "),
		}
		for _, f := range strings.Split(change, ";") {
			if name, value, ok := strings.Cut(f, ":"); ok {
				fields[strings.TrimSpace(name)] = value
			}
		}
		var parts []string
		for name, value := range fields {
			parts = append(parts, name+": "+value)
		}
		list = append(list, "{"+strings.Join(parts, ", ")+"}")
	}
	return "webhooks: [" + strings.Join(list, ", ") + "]"
}

// rulesOfWebhooks checks rules that both kinds of webhook configurations have.
func rulesOfWebhooks(t *testing.T, rules []resourcetest.Rule) {
	t.Helper()
	for _, d := range []resource.Declaration{validatingWebhookConfigurations, mutatingWebhookConfigurations} {
		t.Run(d.Kind().Name, func(t *testing.T) { resourcetest.Rules(t, d, webhookConfiguration, rules) })
	}
}

const webhookConfiguration = "metadata: {name: hooks}"

func TestFieldsOfWebhooks(t *testing.T) {
	rulesOfWebhooks(t, []resourcetest.Rule{
		{Name: "a webhook is accepted", Change: hooks("")},
		{Name: "no webhooks are accepted"},
		{Name: "a name is fully qualified", Change: hooks("name: pods"),
			Want: []string{`webhooks[0].name: Invalid value: "pods": should be a domain with at least three segments separated by dots`}},
		{Name: "a name is required", Change: hooks(`name: ""`), Want: []string{`webhooks[0].name: Required value`}},
		{Name: "names are unique", Change: hooks("", ""), Want: []string{`webhooks[1].name: Duplicate value: "pods.example.com"`}},
		{Name: "side effects are required", Change: hooks("sideEffects: null"),
			Want: []string{`webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun`}},
		{Name: "side effects are none, at least in a dry run", Change: hooks("sideEffects: Some"),
			Want: []string{`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
		{Name: "review versions are required", Change: hooks("admissionReviewVersions: []"),
			Want: []string{`webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1`}},
		{Name: "a review version is one that the server speaks", Change: hooks("admissionReviewVersions: [v2]"),
			Want: []string{`webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1`}},
		{Name: "a review version of others may stand beside it", Change: hooks("admissionReviewVersions: [v2, v1beta1]")},
		{Name: "review versions are unique", Change: hooks("admissionReviewVersions: [v1, v1]"),
			Want: []string{`webhooks[0].admissionReviewVersions[1]: Invalid value: "v1": duplicate version`}},
		{Name: "the timeout is at most 30 seconds", Change: hooks("timeoutSeconds: 31"),
			Want: []string{`webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`}},
		{Name: "the timeout is at least a second", Change: hooks("timeoutSeconds: 0"),
			Want: []string{`webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds`}},
		{Name: "policies are known", Change: hooks("failurePolicy: Shrug; matchPolicy: Roughly"), Want: []string{
			`webhooks[0].failurePolicy: Unsupported value: "Shrug": supported values: "Fail", "Ignore"`,
			`webhooks[0].matchPolicy: Unsupported value: "Roughly": supported values: "Equivalent", "Exact"`}},
	})
}

func TestClientConfigurationsOfWebhooks(t *testing.T) {
	rulesOfWebhooks(t, []resourcetest.Rule{
		{Name: "a webhook has a URL or a service", Change: hooks("clientConfig: {}"),
			Want: []string{`webhooks[0].clientConfig: Required value: exactly one of url or service is required`}},
		{Name: "a webhook does not have both", Change: hooks(`clientConfig: {url: "https://example.com", service: {name: a, namespace: b}}`),
			Want: []string{`webhooks[0].clientConfig: Required value: exactly one of url or service is required`}},
		{Name: "a service has a name, a namespace and a path of labels", Change: hooks("clientConfig: {service: {path: /a/_b, port: 0}}"), Want: []string{
			`webhooks[0].clientConfig.service.name: Required value`,
			`webhooks[0].clientConfig.service.namespace: Required value`,
			`webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive`,
			`webhooks[0].clientConfig.service.path: Invalid value: "/a/_b": segment[1]: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		{Name: "a URL is of https and no more than host and path", Change: hooks(`clientConfig: {url: "http://u@example.com/x?y#z"}`), Want: []string{
			`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`,
			`webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL`,
			`webhooks[0].clientConfig.url: Invalid value: "z": fragments are not permitted in the URL`,
			`webhooks[0].clientConfig.url: Invalid value: "y": query parameters are not permitted in the URL`}},
	})
}

func TestRulesOfWebhooks(t *testing.T) {
	rulesOfWebhooks(t, []resourcetest.Rule{
		{Name: "a rule says what it matches", Change: hooks("rules: [{}]"), Want: []string{
			`webhooks[0].rules[0].operations: Required value`,
			`webhooks[0].rules[0].apiGroups: Required value`,
			`webhooks[0].rules[0].apiVersions: Required value`,
			`webhooks[0].rules[0].resources: Required value`}},
		{Name: "'*' stands alone", Change: hooks(`rules: [{operations: ["*", CREATE], apiGroups: ["*", apps], apiVersions: ["*", v1], resources: ["*/*", pods]}]`), Want: []string{
			`webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`,
			`webhooks[0].rules[0].apiGroups: Invalid value: ["*","apps"]: if '*' is present, must not specify other API groups`,
			`webhooks[0].rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions`,
			`webhooks[0].rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`}},
		{Name: "operations and scopes are known", Change: hooks(`rules: [{operations: [create], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Galaxy}]`), Want: []string{
			`webhooks[0].rules[0].operations[0]: Unsupported value: "create": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
			`webhooks[0].rules[0].scope: Unsupported value: "Galaxy": supported values: "*", "Cluster", "Namespaced"`}},
		{Name: "selectors are valid", Change: hooks(`objectSelector: {matchLabels: {a: "b c"}}`), Want: []string{
			`webhooks[0].objectSelector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
	})
}

func TestMatchConditionsOfWebhooks(t *testing.T) {
	rulesOfWebhooks(t, []resourcetest.Rule{
		{Name: "match conditions have unique names and expressions", Change: hooks(`matchConditions: [{name: a, expression: "true"}, {name: a, expression: " "}]`), Want: []string{
			`webhooks[0].matchConditions[1].name: Duplicate value: "a"`,
			`webhooks[0].matchConditions[1].expression: Required value`}},
		{Name: "match conditions compile to bool, without parameters",
			Change: hooks(`matchConditions: [{name: a, expression: "(("}, {name: b, expression: "1"}, {name: c, expression: "params == null"}, {name: d, expression: "object.spec.x && authorizer.path('/').check('get').allowed()"}]`),
			Want: []string{
				`webhooks[0].matchConditions[0].expression: Invalid value: "((": ` + syntaxError,
				`webhooks[0].matchConditions[1].expression: Invalid value: "1": must evaluate to bool but got int`,
				`webhooks[0].matchConditions[2].expression: Invalid value: "params == null": ` +
					"compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params == null\n | ^"}},
		{Name: "an update may keep invalid match conditions", Update: true,
			Was: hooks(`matchConditions: [{name: a, expression: "(("}]`), Change: hooks(`timeoutSeconds: 5; matchConditions: [{name: a, expression: "(("}]`)},
		{Name: "an update may correct them", Update: true,
			Was: hooks(`matchConditions: [{name: a, expression: "(("}]`), Change: hooks(`matchConditions: [{name: a, expression: "true"}]`)},
		{Name: "an update that changes conditions needs valid ones", Update: true,
			Was: hooks(""), Change: hooks(`matchConditions: [{name: a, expression: "(("}]`),
			Want: []string{`webhooks[0].matchConditions[0].expression: Invalid value: "((": ` + syntaxError}},
	})
}

func TestReinvocationPolicyOfMutatingWebhooks(t *testing.T) {
	resourcetest.Rules(t, mutatingWebhookConfigurations, webhookConfiguration, []resourcetest.Rule{
		{Name: "the reinvocation policy is known", Change: hooks("reinvocationPolicy: Always"),
			Want: []string{`webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}},
	})
}

func TestResourcesOfRules(t *testing.T) {
	for _, test := range []struct {
		rule      string
		resources []string
		want      []string
	}{
		{"resources and subresources are accepted", []string{"pods", "pods/status", "*/scale"}, nil},
		{"all resources and all of one's subresources are accepted", []string{"*", "pods/*"}, nil},
		{"all resources after one are accepted", []string{"pods", "*"}, nil},
		{"all resources before one are refused", []string{"*", "pods"}, []string{`r: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`}},
		{"a subresource is not named again", []string{"pods/*", "pods/status"}, []string{`r[1]: Invalid value: "pods/status": if 'pods/*' is present, must not specify pods/status`}},
		{"a resource is not named again", []string{"*/status", "pods/status"}, []string{`r[1]: Invalid value: "pods/status": if '*/status' is present, must not specify pods/status`}},
		{"an empty name is refused", []string{""}, []string{`r[0]: Required value`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			resourcetest.Errors(t, validateResources(rootPath, test.resources), test.want...)
		})
	}
}
