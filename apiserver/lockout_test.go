package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

const (
	registrations = "/apis/admissionregistration.k8s.io/v1/"
	// anything are the rules of a webhook or policy for all that there is.
	anything = `[{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"}]`
)

// guards refuse all requests. The objects are by resource.
var guards = []struct {
	rule    string
	objects map[string]string
	// refuses are the kinds of harmless that are not exempt: policies decide about
	// webhooks, and an operator removes the policy first.
	refuses []string
}{
	{"a validating webhook that does not answer", map[string]string{"validatingwebhookconfigurations": deaf}, nil},
	{"a mutating webhook that does not answer", map[string]string{"mutatingwebhookconfigurations": deaf}, nil},
	{"a validating policy that refuses everything", map[string]string{
		"validatingadmissionpolicies": `{"metadata": {"name": "guard"}, "spec": {"failurePolicy": "Fail", "validations": [{"expression": "false"}],
			"matchConstraints": {"resourceRules": ` + anything + `}}}`,
		"validatingadmissionpolicybindings": `{"metadata": {"name": "guard"}, "spec": {"policyName": "guard", "validationActions": ["Deny"]}}`,
	}, webhookKinds},
	{"a mutating policy that fails", map[string]string{
		"mutatingadmissionpolicies": `{"metadata": {"name": "guard"}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/none'}]"}}],
			"matchConstraints": {"resourceRules": ` + anything + `}}}`,
		"mutatingadmissionpolicybindings": `{"metadata": {"name": "guard"}, "spec": {"policyName": "guard"}}`,
	}, webhookKinds},
}

var webhookKinds = []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}

// deaf is the configuration of a webhook that fails for everything.
const deaf = `{"metadata": {"name": "guard"}, "webhooks": [{"name": "guard.example.com", "failurePolicy": "Fail", "timeoutSeconds": 1,
	"sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1"}, "rules": ` + anything + `}]}`

// harmless are objects of the kinds by which an operator changes what admission does. They
// select nothing.
var harmless = map[string]string{
	"validatingwebhookconfigurations": `{"metadata": {"name": "x"}}`,
	"mutatingwebhookconfigurations":   `{"metadata": {"name": "x"}}`,
	"validatingadmissionpolicies": `{"metadata": {"name": "x"}, "spec": {"validations": [{"expression": "true"}],
		"matchConstraints": {"resourceRules": [{"apiGroups": ["none"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["none"]}]}}}`,
	"validatingadmissionpolicybindings": `{"metadata": {"name": "x"}, "spec": {"policyName": "none", "validationActions": ["Deny"]}}`,
	"mutatingadmissionpolicies": `{"metadata": {"name": "x"}, "spec": {"reinvocationPolicy": "Never",
		"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/none'}]"}}],
		"matchConstraints": {"resourceRules": [{"apiGroups": ["none"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["none"]}]}}}`,
	"mutatingadmissionpolicybindings": `{"metadata": {"name": "x"}, "spec": {"policyName": "none"}}`,
}

// TestNoWebhookOrPolicyLocksAnOperatorOut has guards that refuse everything. The kinds by
// which an operator turns them off can be created, changed and removed all the same, as
// Kubernetes has it, and the server stays ready.
func TestNoWebhookOrPolicyLocksAnOperatorOut(t *testing.T) {
	s := newStage(t, "", func(o *options.Options) { o.Release = release.Newest })
	try := func() (int, string) {
		code, body := s.request("admin", http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata": {"name": "victim"}}`, nil)
		if code == http.StatusCreated {
			return code, body
		}
		return http.StatusTeapot, body // any refusal
	}
	for _, guard := range guards {
		t.Run(guard.rule, func(t *testing.T) {
			for resource, body := range guard.objects {
				s.must(http.MethodPost, registrations+resource, body)
			}
			await(t, try, http.StatusTeapot)
			for resource, body := range harmless {
				if slices.Contains(guard.refuses, resource) {
					if code, answer := s.request("admin", http.MethodPost, registrations+resource, body, nil); code < http.StatusBadRequest {
						t.Errorf("%s is not refused: %d %s", resource, code, answer)
					}
					continue
				}
				for _, step := range []struct{ method, path, body string }{
					{http.MethodPost, "", body},
					{http.MethodPatch, "/x", `{"metadata": {"labels": {"a": "b"}}}`},
					{http.MethodDelete, "/x", ""},
				} {
					if code, answer := s.request("admin", step.method, registrations+resource+step.path, step.body, nil); code >= http.StatusMultipleChoices {
						t.Errorf("%s %s: %d %s", step.method, resource, code, answer)
					} else if step.method == http.MethodPatch && !strings.Contains(answer, `"a":"b"`) {
						t.Errorf("%s is not changed: %s", resource, answer)
					}
				}
			}
			for _, path := range []string{"/readyz", "/livez"} {
				if code, body := s.request("admin", http.MethodGet, path, "", nil); code != http.StatusOK {
					t.Errorf("%s: %d %s", path, code, body)
				}
			}
			for resource := range guard.objects {
				s.must(http.MethodDelete, registrations+resource+"/guard", "")
			}
			await(t, try, http.StatusCreated)
		})
	}
}
