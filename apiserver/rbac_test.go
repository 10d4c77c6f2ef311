package apiserver_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

// withRBAC starts a server in the mode RBAC, with the users admin and jane,
// whose tokens are their names.
func withRBAC(t *testing.T) (as func(user, method, path, body string) (int, string)) {
	t.Helper()
	return withUsers(t, func(o *options.Options) { o.Authorization.Modes = []string{authorization.RBAC} })
}

func withUsers(t *testing.T, change func(*options.Options)) (as func(user, method, path, body string) (int, string)) {
	t.Helper()
	o, _ := newOptions(t)
	change(o)
	if err := os.WriteFile(o.Authentication.TokenAuthFile, []byte("admin,admin,1,system:masters\njane,jane,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, o)
	return func(user, method, path, body string) (int, string) {
		t.Helper()
		return r.as(t, user, method, path, body)
	}
}

func TestRolesAndBindingsGrantRules(t *testing.T) {
	as := withRBAC(t)
	list := func() (int, string) { return as("jane", http.MethodGet, "/api/v1/namespaces/default/configmaps", "") }
	refusal := `configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"`
	if code, body := list(); code != http.StatusForbidden || !strings.Contains(body, refusal) {
		t.Errorf("without a role: %d %s", code, body)
	}
	for path, want := range map[string]int{"/apis": http.StatusOK, "/metrics": http.StatusForbidden} {
		await(t, func() (int, string) { return as("jane", http.MethodGet, path, "") }, want)
	}
	for path, body := range map[string]string{
		"/namespaces/default/roles": `{"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}`,
		"/namespaces/default/rolebindings": `{"metadata": {"name": "jane"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
			"subjects": [{"kind": "User", "name": "jane"}]}`,
	} {
		if code, answer := as("admin", http.MethodPost, rbacPath+path, body); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, code, answer)
		}
	}
	await(t, list, http.StatusOK)
	if code, body := as("admin", http.MethodDelete, rbacPath+"/namespaces/default/rolebindings/jane", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	await(t, list, http.StatusForbidden)
}

func TestAUserCannotGrantRulesThatTheUserDoesNotHold(t *testing.T) {
	as := withRBAC(t)
	role := func(name, verbs string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [%s]}]}`, name, verbs)
	}
	binding := func(role string) string {
		return fmt.Sprintf(`{"metadata": {"generateName": "b-"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": %q},
			"subjects": [{"kind": "User", "name": "jane"}]}`, role)
	}
	own := `{"metadata": {"name": "own"}, "rules": [
		{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["create", "update"]},
		{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["lent"]},
		{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}`
	for path, bodies := range map[string][]string{"/clusterroles": {own, role("lent", `"delete"`)}, "/clusterrolebindings": {binding("own")}} {
		for _, body := range bodies {
			if code, answer := as("admin", http.MethodPost, rbacPath+path, body); code != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, code, answer)
			}
		}
	}
	post := func(path, body string) func() (int, string) {
		return func() (int, string) { return as("jane", http.MethodPost, rbacPath+path, body) }
	}
	await(t, post("/clusterroles", role("less", `"get"`)), http.StatusCreated)
	// The check reads roles from etcd, so it sees a role that was just written.
	if code, body := post("/clusterrolebindings", binding("less"))(); code != http.StatusCreated {
		t.Errorf("a binding right after its role: %d %s", code, body)
	}
	await(t, post("/clusterrolebindings", binding("lent")), http.StatusCreated)
	const kept = `is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:`
	for name, try := range map[string]struct {
		request func() (int, string)
		code    int
		want    string
	}{
		"a role with more":     {post("/clusterroles", role("more", `"get", "watch", "list"`)), http.StatusForbidden, kept + `[\"\"], Resources:[\"configmaps\"], Verbs:[\"watch\" \"list\"]}"`},
		"a binding to more":    {post("/clusterrolebindings", binding("cluster-admin")), http.StatusForbidden, kept},
		"a binding to nothing": {post("/clusterrolebindings", binding("none")), http.StatusNotFound, `\"none\" not found`},
		"a role that is extended": {func() (int, string) {
			return as("jane", http.MethodPut, rbacPath+"/clusterroles/less", role("less", `"*"`))
		}, http.StatusForbidden, kept},
		"a role with an aggregation rule": {post("/clusterroles", `{"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}`), http.StatusForbidden, "must have cluster-admin privileges to use the aggregationRule"},
	} {
		if code, body := try.request(); code != try.code || !strings.Contains(body, try.want) {
			t.Errorf("%s: %d %s\nwant %d %s", name, code, body, try.code, try.want)
		}
	}
}

func TestWithoutRBACAUserCannotGrantRulesEither(t *testing.T) {
	as := withUsers(t, func(o *options.Options) {
		o.Authorization.Modes = []string{authorization.ABAC}
		o.Authorization.PolicyFile = filepath.Join(t.TempDir(), "policy.jsonl")
		policy := `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "jane", "apiGroup": "rbac.authorization.k8s.io", "resource": "clusterrolebindings"}}`
		if err := os.WriteFile(o.Authorization.PolicyFile, []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	const role = `{"metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}`
	if code, body := as("admin", http.MethodPost, rbacPath+"/clusterroles", role); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	// The binding would be in force once the mode RBAC is on.
	const binding = `{"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}, "subjects": [{"kind": "User", "name": "jane"}]}`
	if code, body := as("jane", http.MethodPost, rbacPath+"/clusterrolebindings", binding); code != http.StatusForbidden || !strings.Contains(body, "is attempting to grant RBAC permissions not currently held") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := as("admin", http.MethodPost, rbacPath+"/clusterrolebindings", binding); code != http.StatusCreated {
		t.Errorf("a member of system:masters: %d %s", code, body)
	}
}

// await repeats a request until its response has the code: the authorizer reads
// roles from informers, which are a moment behind.
func await(t *testing.T, request func() (int, string), want int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for {
		code, body := request()
		if code == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the answer stays %d %s, want %d", code, body, want)
		}
	}
}
