package authorization

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var (
	admin     = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	jane      = &user.DefaultInfo{Name: "jane", Groups: []string{"developers", user.AllAuthenticated}}
	anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
)

func TestAuthorize(t *testing.T) {
	listPods := authorizer.AttributesRecord{Verb: "list", Resource: "pods", Namespace: "default", ResourceRequest: true}
	for _, tc := range []struct {
		name  string
		modes []string
		user  user.Info
		ask   authorizer.AttributesRecord
		want  bool
	}{
		{name: "system:masters may read resources", user: admin, ask: listPods, want: true},
		{name: "system:masters may use subresources", user: admin, ask: authorizer.AttributesRecord{Verb: "create", Resource: "pods", Subresource: "exec", ResourceRequest: true}, want: true},
		{name: "system:masters may use paths", user: admin, ask: path("post", "/debug/pprof/profile"), want: true},
		{name: "authenticated users may not read resources", user: jane, ask: listPods},
		{name: "authenticated users may discover", user: jane, ask: path("get", "/apis/apps/v1"), want: true},
		{name: "authenticated users may discover the core", user: jane, ask: path("get", "/api"), want: true},
		{name: "authenticated users may read OpenAPI", user: jane, ask: path("get", "/openapi/v3/apis/apps/v1"), want: true},
		{name: "authenticated users may read by which keys tokens are signed", user: jane, ask: path("get", "/openid/v1/jwks"), want: true},
		{name: "anonymous users may not", user: anonymous, ask: path("get", "/.well-known/openid-configuration")},
		{name: "authenticated users may not read metrics", user: jane, ask: path("get", "/metrics")},
		{name: "authenticated users may only get", user: jane, ask: path("post", "/api")},
		{name: "authenticated users may ask who they are", user: jane, ask: authorizer.AttributesRecord{Verb: "create", APIGroup: "authentication.k8s.io", Resource: "selfsubjectreviews", ResourceRequest: true}, want: true},
		{name: "authenticated users may ask what they may do", user: jane, ask: authorizer.AttributesRecord{Verb: "create", APIGroup: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", ResourceRequest: true}, want: true},
		{name: "authenticated users may not ask about others", user: jane, ask: authorizer.AttributesRecord{Verb: "create", APIGroup: "authorization.k8s.io", Resource: "subjectaccessreviews", ResourceRequest: true}},
		{name: "anonymous users see health", user: anonymous, ask: path("get", "/readyz"), want: true},
		{name: "anonymous users see the version", user: anonymous, ask: path("get", "/version"), want: true},
		{name: "anonymous users do not see single checks", user: anonymous, ask: path("get", "/readyz/etcd")},
		{name: "anonymous users do not discover", user: anonymous, ask: path("get", "/apis")},
		{name: "anonymous users do not read OpenAPI", user: anonymous, ask: path("get", "/openapi/v2")},
		{name: "a request without a user is not allowed", ask: path("get", "/version")},
		{name: "AlwaysAllow allows every user", modes: []string{"AlwaysAllow"}, user: anonymous, ask: listPods, want: true},
		{name: "AlwaysDeny denies discovery", modes: []string{"AlwaysDeny"}, user: jane, ask: path("get", "/api")},
		{name: "AlwaysDeny does not apply to system:masters", modes: []string{"AlwaysDeny"}, user: admin, ask: listPods, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := New(Config{Modes: tc.modes})
			if err != nil {
				t.Fatal(err)
			}
			tc.ask.User = tc.user
			decision, reason, err := a.Authorize(t.Context(), tc.ask)
			if err != nil {
				t.Fatal(err)
			}
			if got := decision == authorizer.DecisionAllow; got != tc.want {
				t.Errorf("decision = %v (%s), want allowed = %v", decision, reason, tc.want)
			}
		})
	}
}

func TestRulesForListsWhatAuthorizeAllows(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		user user.Info
		want string
	}{
		{admin, "* on *.*; create on selfsubjectaccessreviews,selfsubjectrulesreviews.authorization.k8s.io; create on selfsubjectreviews.authentication.k8s.io"},
		{jane, "create on selfsubjectaccessreviews,selfsubjectrulesreviews.authorization.k8s.io; create on selfsubjectreviews.authentication.k8s.io"},
		{anonymous, ""},
	} {
		resources, paths, incomplete, err := a.RulesFor(t.Context(), tc.user, "default")
		if err != nil || incomplete || len(paths) == 0 {
			t.Errorf("%s: paths = %d, incomplete = %v, error = %v", tc.user.GetName(), len(paths), incomplete, err)
		}
		var got []string
		for _, r := range resources {
			got = append(got, strings.Join(r.GetVerbs(), ",")+" on "+strings.Join(r.GetResources(), ",")+"."+strings.Join(r.GetAPIGroups(), ","))
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s may %s\nwant %s", tc.user.GetName(), strings.Join(got, "; "), tc.want)
		}
	}
}

func TestAGrantToAUserAppliesToNoOtherUser(t *testing.T) {
	read := rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	a, err := New(Config{Components: Grants{{User: "system:kube-controller-manager", Rules: []rbacv1.PolicyRule{read}}}})
	if err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]authorizer.Decision{
		"system:kube-controller-manager": authorizer.DecisionAllow,
		"jane":                           authorizer.DecisionNoOpinion,
		"":                               authorizer.DecisionNoOpinion,
	} {
		ask := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: "list", Resource: "pods", ResourceRequest: true}
		if got, _, err := a.Authorize(t.Context(), ask); got != want || err != nil {
			t.Errorf("%q may list pods: %v, %v; want %v", who, got, err, want)
		}
	}
}

func TestAllows(t *testing.T) {
	pods := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	named := pods
	named.ResourceNames = []string{"a"}
	log := pods
	log.Resources = []string{"pods/log"}
	scale := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*/scale"}}
	for _, tc := range []struct {
		name string
		rule rbacv1.PolicyRule
		ask  authorizer.AttributesRecord
		want bool
	}{
		{"the resource", pods, authorizer.AttributesRecord{Verb: "get", Resource: "pods"}, true},
		{"another verb", pods, authorizer.AttributesRecord{Verb: "list", Resource: "pods"}, false},
		{"another group", pods, authorizer.AttributesRecord{Verb: "get", Resource: "pods", APIGroup: "metrics.k8s.io"}, false},
		{"a resource does not include its subresources", pods, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Subresource: "log"}, false},
		{"a subresource", log, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Subresource: "log"}, true},
		{"a subresource does not include its resource", log, authorizer.AttributesRecord{Verb: "get", Resource: "pods"}, false},
		{"a subresource of any resource", scale, authorizer.AttributesRecord{Verb: "update", APIGroup: "apps", Resource: "deployments", Subresource: "scale"}, true},
		{"any resource's subresource is not any resource", scale, authorizer.AttributesRecord{Verb: "update", APIGroup: "apps", Resource: "deployments"}, false},
		{"a name", named, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "a"}, true},
		{"another name", named, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "b"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.ask.ResourceRequest = true
			if got := Allows(tc.rule, tc.ask); got != tc.want {
				t.Errorf("Allows = %v, want %v", got, tc.want)
			}
		})
	}
}

func path(verb, p string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: p}
}
