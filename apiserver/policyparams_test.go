package apiserver_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// The annotation in which audit events have what a binding with the action Audit refused.
const auditedFailure = "validation.policy.admission.k8s.io/validation_failure"

// newPolicyStage is a server of the newest release, with a policy that refuses secrets of
// the type in its parameter, and a log of audit events.
func newPolicyStage(t *testing.T) (s stage, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "audit.log")
	s = newStage(t, "", func(o *options.Options) {
		o.Release = release.Newest
		o.Audit.PolicyFile = write(t, `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
			"rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["secrets"]}]}, {"level": "None"}]}`)
		o.Audit.LogOptions.Path = log
	})
	s.must(http.MethodPost, registrations+"validatingadmissionpolicies", `{"metadata": {"name": "types"}, "spec": {
		"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
		"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
		"validations": [{"expression": "object.type != params.data.refused", "messageExpression": "'refused is ' + params.data.refused"}]}}`)
	return s, log
}

// bind makes a namespace, and a binding of the policy in it.
func (s stage) bind(namespace, paramRef, actions string) {
	s.t.Helper()
	s.must(http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata": {"name": %q}}`, namespace))
	s.must(http.MethodPost, registrations+"validatingadmissionpolicybindings", fmt.Sprintf(`{"metadata": {"name": %[1]q}, "spec": {"policyName": "types",
		"paramRef": %[2]s, "validationActions": %[3]s, "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %[1]q}}}}}`,
		namespace, paramRef, actions))
}

// param makes a parameter with the label kind=limit.
func (s stage) param(namespace, name, refused string) {
	s.t.Helper()
	s.must(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps",
		fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"kind": "limit"}}, "data": {"refused": %q}}`, name, refused))
}

// secret returns a request that tries to create a secret.
func (s stage) secret(namespace, of string) func() (int, string) {
	return func() (int, string) {
		return s.request("admin", http.MethodPost, "/api/v1/namespaces/"+namespace+"/secrets?dryRun=All", fmt.Sprintf(`{"metadata": {"name": "s"}, "type": %q}`, of), nil)
	}
}

func (s stage) says(request func() (int, string), code int, want string) {
	s.t.Helper()
	await(s.t, request, code)
	if _, body := request(); !strings.Contains(body, want) {
		s.t.Errorf("answered %s, want %s", body, want)
	}
}

func TestAPolicyDecidesWithItsParameters(t *testing.T) {
	s, _ := newPolicyStage(t)
	const named, selected, deny = `{"name": "p", "parameterNotFoundAction": %q}`, `{"selector": {"matchLabels": {"kind": "limit"}}, "parameterNotFoundAction": "Deny"}`, `["Deny"]`
	const absent = "no params found for policy binding with `Deny` parameterNotFoundAction"
	t.Run("by name", func(t *testing.T) {
		s := stage{s.running, t}
		s.bind("named", fmt.Sprintf(named, "Deny"), deny)
		s.param("named", "p", "bad")
		s.param("named", "other", "good")
		s.says(s.secret("named", "bad"), http.StatusUnprocessableEntity, "refused is bad")
		s.says(s.secret("named", "good"), http.StatusCreated, "")
	})
	for action, code := range map[string]int{"Deny": http.StatusUnprocessableEntity, "Allow": http.StatusCreated} {
		t.Run("absent, with the action "+action, func(t *testing.T) {
			s := stage{s.running, t}
			namespace := "absent-" + strings.ToLower(action)
			s.bind(namespace, fmt.Sprintf(named, action), deny)
			s.param(namespace, "p", "bad")
			s.says(s.secret(namespace, "bad"), http.StatusUnprocessableEntity, "refused is bad")
			s.must(http.MethodDelete, "/api/v1/namespaces/"+namespace+"/configmaps/p", "")
			if code == http.StatusCreated {
				await(t, s.secret(namespace, "bad"), code)
				return
			}
			await(t, s.secret(namespace, "good"), code)
			s.says(s.secret(namespace, "good"), code, absent)
		})
	}
	t.Run("by a selector", func(t *testing.T) {
		s := stage{s.running, t}
		s.bind("selected", selected, deny)
		s.says(s.secret("selected", "good"), http.StatusUnprocessableEntity, absent)
		s.param("selected", "one", "bad")
		s.param("selected", "two", "worse")
		s.says(s.secret("selected", "bad"), http.StatusUnprocessableEntity, "refused is bad")
		s.says(s.secret("selected", "worse"), http.StatusUnprocessableEntity, "refused is worse")
		s.says(s.secret("selected", "good"), http.StatusCreated, "")
	})
}

func TestAPolicyWarnsAndRecords(t *testing.T) {
	s, log := newPolicyStage(t)
	s.bind("warned", `{"name": "p", "parameterNotFoundAction": "Deny"}`, `["Warn", "Audit"]`)
	s.param("warned", "p", "bad")
	const want = `299 - "Validation failed for ValidatingAdmissionPolicy 'types' with binding 'warned': refused is bad"`
	warning := func(of string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/namespaces/warned/secrets?dryRun=All",
			strings.NewReader(fmt.Sprintf(`{"metadata": {"name": "s"}, "type": %q}`, of)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer admin")
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("answered %s", resp.Status)
		}
		return strings.Join(resp.Header.Values("Warning"), "; ")
	}
	await(t, func() (int, string) {
		if got := warning("bad"); got != want {
			return http.StatusTeapot, got
		}
		return http.StatusOK, ""
	}, http.StatusOK)
	if got := warning("good"); got != "" {
		t.Errorf("of a secret that is accepted: %s", got)
	}
	s.stop(t)
	events := auditEvents(t, log)
	if last := events[len(events)-1].Annotations[auditedFailure]; last != "" {
		t.Errorf("the event of a secret that is accepted has %s", last)
	}
	if got, want := events[len(events)-2].Annotations[auditedFailure],
		`[{"message":"refused is bad","policy":"types","binding":"warned","expressionIndex":0,"validationActions":["Warn","Audit"]}]`; got != want {
		t.Errorf("the event of a refused secret has %s, want %s", got, want)
	}
}

// policyOf, and bindingOf, return the bodies of an object of either kind.
func policyOf(resource, version, name, paramKind string) string {
	const rules = `"matchConstraints": {"resourceRules": [{"apiGroups": ["none"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["none"]}]}`
	kind, does := "ValidatingAdmissionPolicy", `"validations": [{"expression": "true"}]`
	if strings.HasPrefix(resource, "mutating") {
		kind, does = "MutatingAdmissionPolicy", `"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/none'}]"}}]`
	}
	return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/%s", "kind": %q, "metadata": {"name": %q}, "spec": {"paramKind": %s, %s, %s}}`,
		version, kind, name, paramKind, rules, does)
}

func bindingOf(resource, version, name, policy string) string {
	kind, does := "ValidatingAdmissionPolicyBinding", `, "validationActions": ["Deny"]`
	if strings.HasPrefix(resource, "mutating") {
		kind, does = "MutatingAdmissionPolicyBinding", ""
	}
	return fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/%s", "kind": %q, "metadata": {"name": %q},
		"spec": {"policyName": %q, "paramRef": {"name": "p", "namespace": "default", "parameterNotFoundAction": "Allow"}%s}}`, version, kind, name, policy, does)
}

// TestNoUserReadsObjectsThroughPolicies has a user who may write policies and bindings, and
// read configmaps and widgets, which are custom resources, but no secrets.
func TestNoUserReadsObjectsThroughPolicies(t *testing.T) {
	const secret, configMap, widget = `{"apiVersion": "v1", "kind": "Secret"}`, `{"apiVersion": "v1", "kind": "ConfigMap"}`, `{"apiVersion": "example.com/v1", "kind": "Widget"}`
	for _, r := range []release.Release{{Major: 1, Minor: 28}, release.Newest} {
		s := newStage(t, known+`{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
			{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}`, func(o *options.Options) {
			o.Release, o.RuntimeConfig = r, map[string]string{"api/all": "true"}
		})
		s.must(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
			"names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`)
		await(t, func() (int, string) {
			return s.request("mallory", http.MethodGet, "/apis/example.com/v1/namespaces/default/widgets/none", "", nil)
		}, http.StatusNotFound)
		await(t, func() (int, string) { return s.request("admin", http.MethodGet, "/apis/example.com/v1", "", nil) }, http.StatusOK)
		served := 0
		for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
			for _, kind := range []string{"validating", "mutating"} {
				group := "/apis/admissionregistration.k8s.io/" + version + "/"
				policies, bindings := kind+"admissionpolicies", kind+"admissionpolicybindings"
				if code, _ := s.request("admin", http.MethodGet, group+policies, "", nil); code == http.StatusNotFound {
					continue
				}
				served++
				t.Run(fmt.Sprintf("%v %s %s", r, version, policies), func(t *testing.T) {
					s := stage{s.running, t}
					s.tryParameters(group+policies, "spec.paramKind", policyOf(policies, version, "x", secret), policyOf(policies, version, "x", configMap), `{"spec": {"paramKind": `+secret+`}}`)
					s.tryParameters(group+policies, "spec.paramKind", policyOf(policies, version, "x", secret), policyOf(policies, version, "x", widget), `{"spec": {"paramKind": `+secret+`}}`)
					s.must(http.MethodPost, group+policies, policyOf(policies, version, "secrets", secret))
					s.must(http.MethodPost, group+policies, policyOf(policies, version, "maps", configMap))
					s.tryParameters(group+bindings, "spec.paramRef", bindingOf(bindings, version, "x", "secrets"), bindingOf(bindings, version, "x", "maps"), `{"spec": {"policyName": "secrets"}}`)
					for _, name := range []string{"secrets", "maps"} {
						s.must(http.MethodDelete, group+policies+"/"+name, "")
					}
				})
			}
		}
		if served < 2 {
			t.Errorf("release %v serves %d versions of policies", r, served)
		}
		s.stop(t)
	}
}

// TestNoUserReadsObjectsThroughPoliciesOfAGroupDomain is the same of a server behind a host,
// which decides about the kinds by their names in the domain.
func TestNoUserReadsObjectsThroughPoliciesOfAGroupDomain(t *testing.T) {
	const domain = "fleet.example.com"
	host := newStage(t, known+`{"apiGroups": ["admissionregistration.`+domain+`"], "resources": ["*"], "verbs": ["*"]}, {"apiGroups": ["core.`+domain+`"], "resources": ["configmaps"], "verbs": ["get"]},
		{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}`)
	kubeconfig := write(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "c", "user": {"token": "admin"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, host.url))
	o, _ := newOptions(t)
	o.Release = release.Newest
	s := stage{start(t, inDomain(o, domain, kubeconfig)), t}
	const group, secret, configMap = "/apis/admissionregistration." + domain + "/v1/", `{"apiVersion": "core.` + domain + `/v1", "kind": "Secret"}`, `{"apiVersion": "core.` + domain + `/v1", "kind": "ConfigMap"}`
	for _, policies := range []string{"validatingadmissionpolicies", "mutatingadmissionpolicies"} {
		of := func(kind string) string {
			return strings.Replace(policyOf(policies, "v1", "x", kind), "admissionregistration.k8s.io", "admissionregistration."+domain, 1)
		}
		s.tryParameters(group+policies, "spec.paramKind", of(secret), of(configMap), `{"spec": {"paramKind": `+secret+`}}`)
	}
}

// tryParameters makes requests of a user who may read the parameters of one body, and not
// those of the other, to which the patch changes the first.
func (s stage) tryParameters(path, field, forbidden, permitted, patch string) {
	s.t.Helper()
	send := func(method, path, body string, want int, header map[string]string) {
		s.t.Helper()
		code, answer := s.request("mallory", method, path, body, header)
		if code != want || want == http.StatusUnprocessableEntity && (!strings.Contains(answer, `"reason":"FieldValueForbidden"`) || !strings.Contains(answer, `"field":"`+field+`"`)) {
			s.t.Errorf("%s %s: %d %s, want %d", method, path, code, answer, want)
		}
	}
	apply := map[string]string{"Content-Type": "application/apply-patch+yaml"}
	send(http.MethodPost, path, forbidden, http.StatusUnprocessableEntity, nil)
	send(http.MethodPost, path+"?dryRun=All", forbidden, http.StatusUnprocessableEntity, nil)
	send(http.MethodPatch, path+"/x?fieldManager=m", forbidden, http.StatusUnprocessableEntity, apply)
	send(http.MethodPost, path, permitted, http.StatusCreated, nil)
	send(http.MethodPatch, path+"/x?fieldManager=m&force=true", forbidden, http.StatusUnprocessableEntity, apply)
	send(http.MethodPatch, path+"/x", patch, http.StatusUnprocessableEntity, nil)
	send(http.MethodPatch, path+"/x?dryRun=All", patch, http.StatusUnprocessableEntity, nil)
	s.must(http.MethodPatch, path+"/x", patch) // an administrator may
	send(http.MethodPatch, path+"/x", `{"metadata": {"finalizers": ["example.com/a"], "labels": {"a": "b"}}}`, http.StatusOK, nil)
	send(http.MethodPatch, path+"/x", `{"metadata": {"finalizers": null}}`, http.StatusOK, nil)
	send(http.MethodDelete, path+"/x", "", http.StatusOK, nil)
}
