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
	{"a mutating policy that fails, and would make access reviews those of another user", map[string]string{
		"mutatingadmissionpolicies": `{"metadata": {"name": "guard"}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "object.kind.endsWith('SubjectAccessReview') ? [JSONPatch{op: 'add', path: '/spec/user', value: 'other'}] : [JSONPatch{op: 'remove', path: '/none'}]"}}],
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

// reviews are questions about users and their rights, by the path at which they are asked.
var reviews = map[string]string{
	"/apis/authentication.k8s.io/v1/tokenreviews":           `{"spec": {"token": "none"}}`,
	"/apis/authentication.k8s.io/v1/selfsubjectreviews":     `{}`,
	"/apis/authorization.k8s.io/v1/subjectaccessreviews":    `{"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}}}`,
	"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": `{"spec": {"namespace": "default"}}`,
	"/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews": `{"metadata": {"namespace": "default"},
		"spec": {"user": "jane", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}}`,
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}`,
}

// TestNoWebhookOrPolicyInterceptsReviews has guards that refuse everything: other servers
// would authenticate and authorize no client if the reviews that they send were refused.
func TestNoWebhookOrPolicyInterceptsReviews(t *testing.T) {
	s := newStage(t, "", func(o *options.Options) { o.Release = release.Newest })
	o := operator{stage: s, token: "admin", registrations: registrations, victims: "/api/v1/namespaces/default/configmaps"}
	o.underEachGuard(t, func(t *testing.T, _ []string) {
		for path, body := range reviews {
			if code, answer := o.do(t, http.MethodPost, path, body); code != http.StatusCreated || strings.Contains(answer, "other") {
				t.Errorf("%s: %d %s", path, code, answer)
			}
		}
	})
}

// TestWebhooksInterceptReviewsBefore137 is as Kubernetes has it: the gate
// ExcludeAdmissionWebhookVirtualResources came with 1.37.
func TestWebhooksInterceptReviewsBefore137(t *testing.T) {
	s := newStage(t, "", func(o *options.Options) { o.Release = release.Release{Major: 1, Minor: 36} })
	s.must(http.MethodPost, registrations+"validatingwebhookconfigurations", deaf)
	const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	await(t, func() (int, string) { return s.request("admin", http.MethodPost, path, reviews[path], nil) }, http.StatusInternalServerError)
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

// tryAllGuards tries what an operator needs under each guard.
func (o operator) tryAllGuards(t *testing.T) {
	o.underEachGuard(t, func(t *testing.T, refuses []string) {
		for resource, body := range harmless {
			o.change(t, resource, body, slices.Contains(refuses, resource))
		}
		for _, path := range []string{"/readyz", "/livez"} {
			await(t, func() (int, string) { return o.do(t, http.MethodGet, path, "") }, http.StatusOK)
		}
	})
}

// underEachGuard calls do while a guard is in force, with the kinds of harmless that it refuses.
func (o operator) underEachGuard(t *testing.T, do func(t *testing.T, refuses []string)) {
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
			do(t, guard.refuses)
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
