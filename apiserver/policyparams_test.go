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
