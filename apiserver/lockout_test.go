package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/fleetaddress"
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
	operator{stage: s, token: "admin", registrations: registrations, victims: "/api/v1/namespaces/default/configmaps"}.tryAllGuards(t)
}

// TestNoWebhookOrPolicyLocksAnOperatorOutOfAGroupDomain is the same of a server behind a
// host, whose kinds have the names of a domain, and Kubernetes' own names at the fleet's
// address.
func TestNoWebhookOrPolicyLocksAnOperatorOutOfAGroupDomain(t *testing.T) {
	const domain = "fleet.example.com"
	o, _ := newOptions(t)
	o.Release = release.Newest
	s := stage{start(t, inDomain(o, domain, newHost(t))), t}
	address := fleetaddress.Path(fleetaddress.Group+"."+domain, o.Host.FleetName)
	for _, o := range []operator{
		{stage: s, registrations: "/apis/admissionregistration." + domain + "/v1/", victims: "/apis/core." + domain + "/v1/namespaces/team/configmaps"},
		{stage: s, registrations: address + registrations, victims: address + "/api/v1/namespaces/team/configmaps"},
	} {
		o.token = adminToken
		t.Run(strings.Split(o.registrations, "/")[2], o.tryAllGuards)
	}
}

// operator is a user with all rights, and the paths at which the user works.
type operator struct {
	stage
	token                  string
	registrations, victims string
}

func (o operator) do(t *testing.T, method, path, body string) (int, string) {
	o.t = t
	return o.request(o.token, method, path, body, nil)
}

func (o operator) mustDo(t *testing.T, method, path, body string) {
	t.Helper()
	if code, answer := o.do(t, method, path, body); code >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

func (o operator) tryAllGuards(t *testing.T) {
	try := func() (int, string) {
		code, body := o.do(t, http.MethodPost, o.victims+"?dryRun=All", `{"metadata": {"name": "victim"}}`)
		if code == http.StatusCreated {
			return code, body
		}
		return http.StatusTeapot, body // any refusal
	}
	await(t, try, http.StatusCreated)
	for _, guard := range guards {
		t.Run(guard.rule, func(t *testing.T) {
			for resource, body := range guard.objects {
				o.mustDo(t, http.MethodPost, o.registrations+resource, body)
			}
			await(t, try, http.StatusTeapot)
			for resource, body := range harmless {
				o.change(t, resource, body, slices.Contains(guard.refuses, resource))
			}
			for _, path := range []string{"/readyz", "/livez"} {
				await(t, func() (int, string) { return o.do(t, http.MethodGet, path, "") }, http.StatusOK)
			}
			for resource := range guard.objects {
				o.mustDo(t, http.MethodDelete, o.registrations+resource+"/guard", "")
			}
			await(t, try, http.StatusCreated)
		})
	}
}

// change creates, changes and deletes an object, unless its creation is refused.
func (o operator) change(t *testing.T, resource, body string, refused bool) {
	t.Helper()
	if refused {
		if code, answer := o.do(t, http.MethodPost, o.registrations+resource, body); code < http.StatusBadRequest {
			t.Errorf("%s is not refused: %d %s", resource, code, answer)
		}
		return
	}
	for _, step := range []struct{ method, path, body string }{
		{http.MethodPost, "", body},
		{http.MethodPatch, "/x", `{"metadata": {"labels": {"a": "b"}}}`},
		{http.MethodDelete, "/x", ""},
	} {
		if code, answer := o.do(t, step.method, o.registrations+resource+step.path, step.body); code >= http.StatusMultipleChoices {
			t.Errorf("%s %s: %d %s", step.method, resource, code, answer)
		} else if step.method == http.MethodPatch && !strings.Contains(answer, `"a":"b"`) {
			t.Errorf("%s is not changed: %s", resource, answer)
		}
	}
}
