package abac

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const head = `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": `

func write(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAPolicyAllowsRequestsWithAllOfItsProperties(t *testing.T) {
	policies, err := Load(write(t,
		"# comment", "",
		head+`{"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}`,
		head+`{"user": "bob", "namespace": "projects", "resource": "pods", "readonly": true}}`,
		head+`{"user": "*", "nonResourcePath": "/version"}}`,
		head+`{"group": "ops", "nonResourcePath": "/debug/*", "readonly": true}}`,
		head+`{"user": "eve", "group": "ops", "namespace": "*", "resource": "pods"}}`))
	if err != nil {
		t.Fatal(err)
	}
	authenticated := user.AllAuthenticated
	for _, test := range []struct {
		rule string
		user *user.DefaultInfo
		ask  authorizer.AttributesRecord
		want bool
	}{
		{"every resource", &user.DefaultInfo{Name: "alice"}, authorizer.AttributesRecord{Verb: "delete", Namespace: "x", Resource: "secrets", APIGroup: "g"}, true},
		{"no path by a policy of resources", &user.DefaultInfo{Name: "alice"}, authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}, false},
		{"a read-only policy", &user.DefaultInfo{Name: "bob"}, authorizer.AttributesRecord{Verb: "list", Namespace: "projects", Resource: "pods"}, true},
		{"no write by a read-only policy", &user.DefaultInfo{Name: "bob"}, authorizer.AttributesRecord{Verb: "create", Namespace: "projects", Resource: "pods"}, false},
		{"no other namespace", &user.DefaultInfo{Name: "bob"}, authorizer.AttributesRecord{Verb: "list", Namespace: "x", Resource: "pods"}, false},
		{"no other group of the resource", &user.DefaultInfo{Name: "bob"}, authorizer.AttributesRecord{Verb: "list", Namespace: "projects", Resource: "pods", APIGroup: "metrics.k8s.io"}, false},
		{"a path for every authenticated user", &user.DefaultInfo{Name: "x", Groups: []string{authenticated}}, authorizer.AttributesRecord{Verb: "get", Path: "/version"}, true},
		{"no path for anonymous users", &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, authorizer.AttributesRecord{Verb: "get", Path: "/version"}, false},
		{"a path below a prefix", &user.DefaultInfo{Name: "x", Groups: []string{"ops"}}, authorizer.AttributesRecord{Verb: "get", Path: "/debug/pprof"}, true},
		{"no resource by a policy of paths", &user.DefaultInfo{Name: "x", Groups: []string{"ops"}}, authorizer.AttributesRecord{Verb: "get", Namespace: "x", Resource: "pods"}, false},
		{"user and group", &user.DefaultInfo{Name: "eve", Groups: []string{"ops"}}, authorizer.AttributesRecord{Verb: "get", Namespace: "x", Resource: "pods"}, true},
		{"not the user without the group", &user.DefaultInfo{Name: "eve"}, authorizer.AttributesRecord{Verb: "get", Namespace: "x", Resource: "pods"}, false},
		{"nothing without a user", nil, authorizer.AttributesRecord{Verb: "get", Path: "/version"}, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if test.user != nil {
				test.ask.User = test.user
			}
			test.ask.ResourceRequest = test.ask.Path == ""
			decision, _, err := policies.Authorize(t.Context(), test.ask)
			if got := decision == authorizer.DecisionAllow; got != test.want || err != nil {
				t.Errorf("allowed = %v (%v), want %v", got, err, test.want)
			}
		})
	}
	resources, paths, incomplete, err := policies.RulesFor(t.Context(), &user.DefaultInfo{Name: "bob", Groups: []string{"ops"}}, "projects")
	if len(resources) != 1 || len(paths) != 0 || incomplete || err != nil {
		t.Errorf("rules of bob: %v %v %v %v", resources, paths, incomplete, err)
	}
}

func TestAFileThatIsRefused(t *testing.T) {
	for content, want := range map[string]string{
		"\n" + head + `{"user": "a"`:                         ":2: unexpected EOF",
		head + `{"user": "a", "verb": "get"}}`:               `:1: json: unknown field "verb"`,
		head + `{"resource": "pods"}}`:                       ":1: spec: user or group is required",
		`{"user": "a", "resource": "pods"}`:                  `:1: json: unknown field "user"`,
		`{"kind": "Policy", "spec": {"user": "a"}}`:          `:1: unsupported type: apiVersion must be "abac.authorization.kubernetes.io/v1beta1" and kind "Policy"`,
		head + `{"user": "a"}}` + head + `{"user": "b"}}`:    ":1: more than one object: each line must hold one",
		"# only a comment\n" + head + `{"user": ["alice"]}}`: ":2: json: cannot unmarshal array",
	} {
		file := write(t, content)
		if _, err := Load(file); err == nil || !strings.HasPrefix(err.Error(), file+want) {
			t.Errorf("%s\ngot  %v\nwant %s", content, err, file+want)
		}
	}
}
