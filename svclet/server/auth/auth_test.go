package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// api is a fake: the token "good" is alice's, and alice may get nodes/metrics and
// nodes/pods.
type api struct {
	asked  []string
	fails  []error // the next answers
	reject string
}

func (a *api) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if len(a.fails) > 0 {
		err := a.fails[0]
		a.fails = a.fails[1:]
		return err
	}
	switch review := obj.(type) {
	case *authenticationv1.TokenReview:
		a.asked = append(a.asked, "token "+review.Spec.Token)
		if review.Spec.Token != "good" {
			review.Status.Error = a.reject
			return nil
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: "alice", UID: "1", Groups: []string{"staff"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}}
	case *authorizationv1.SubjectAccessReview:
		r := review.Spec.ResourceAttributes
		a.asked = append(a.asked, review.Spec.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource+" "+r.Name)
		review.Status.Allowed = review.Spec.User == "alice" && r.Verb == "get" && slices.Contains([]string{"metrics", "pods"}, r.Subresource)
	}
	return nil
}

func TestPathsMapToNodeSubresources(t *testing.T) {
	for path, want := range map[string][]string{
		"/pods":                      {"pods", "proxy"},
		"/pods/":                     {"pods", "proxy"},
		"/podsecret":                 {"proxy"},
		"/runningpods/":              {"pods", "proxy"},
		"/healthz":                   {"healthz", "proxy"},
		"/healthz/syncloop":          {"healthz", "proxy"},
		"/configz":                   {"configz", "proxy"},
		"/stats/summary":             {"stats"},
		"/metrics":                   {"metrics"},
		"/metrics/resource":          {"metrics"},
		"/logs/":                     {"log"},
		"/logs/messages":             {"log"},
		"/checkpoint/ns/pod/c":       {"checkpoint"},
		"/statusz":                   {"statusz"},
		"/flagz":                     {"configz"},
		"/exec/ns/pod/c":             {"proxy"},
		"/run/ns/pod/c":              {"proxy"},
		"/attach/ns/pod/c":           {"proxy"},
		"/portForward/ns/pod":        {"proxy"},
		"/containerLogs/ns/pod/c":    {"proxy"},
		"/debug/pprof/":              {"proxy"},
		"/":                          {"proxy"},
		"/pods/../exec/ns/pod/c":     {"pods", "proxy"}, // answered with a redirect, never with a stream
		"//metrics":                  {"proxy"},
		"/Metrics":                   {"proxy"},
		"/metrics%2f..%2fexec/a/b/c": {"proxy"},
	} {
		if got := subresourcesOf(path); !slices.Equal(got, want) {
			t.Errorf("%s stands for %v, want %v", path, got, want)
		}
	}
}

func TestMethodsMapToVerbs(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "", "OPTIONS": "",
	} {
		if got := verbOf(method, "/containerLogs/ns/pod/c"); got != want {
			t.Errorf("%s stands for %q, want %q", method, got, want)
		}
		for _, path := range []string{"/exec/ns/pod/c", "/attach/ns/pod/c", "/portForward/ns/pod", "/run/ns/pod/c"} {
			if got := verbOf(method, path); got != "create" {
				t.Errorf("%s %s stands for %q, want create", method, path, got)
			}
		}
	}
}

func TestAuthenticationByToken(t *testing.T) {
	encoded := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good"))
	for _, c := range []struct {
		name      string
		header    http.Header
		review    bool
		anonymous bool
		user      string
		refused   bool
		protocol  string
	}{
		{name: "a good token", header: http.Header{"Authorization": {"Bearer good"}}, review: true, user: "alice"},
		{name: "whatever the case of its scheme", header: http.Header{"Authorization": {"bearer good"}}, review: true, user: "alice"},
		{name: "a bad token is not anonymous", header: http.Header{"Authorization": {"Bearer bad"}}, review: true, anonymous: true, refused: true},
		{name: "another scheme is no token", header: http.Header{"Authorization": {"Basic good"}}, review: true, anonymous: true, user: "system:anonymous"},
		{name: "an empty token is none", header: http.Header{"Authorization": {"Bearer "}}, review: true, anonymous: true, user: "system:anonymous"},
		{name: "tokens are ignored where they are not reviewed", header: http.Header{"Authorization": {"Bearer good"}}, anonymous: true, user: "system:anonymous"},
		{name: "nothing", anonymous: true, user: "system:anonymous"},
		{name: "nothing, where anonymous callers are not let in"},
		{
			name: "a token among websocket protocols, which is taken out", review: true, user: "alice", protocol: "v5.channel.k8s.io",
			header: http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {encoded + ", v5.channel.k8s.io"}},
		},
		{
			name: "a token among websocket protocols without another protocol", review: true, refused: true, protocol: encoded,
			header: http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {encoded}},
		},
		{
			name: "two tokens among websocket protocols", review: true, refused: true, protocol: encoded + "," + encoded + ",x",
			header: http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {encoded + "," + encoded + ",x"}},
		},
		{name: "names of groups and users that a front proxy would send", anonymous: true, user: "system:anonymous", header: http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := NewAuthenticator(Authentication{Anonymous: c.anonymous, TokenReview: c.review, TokenTTL: time.Minute}, &api{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if c.header != nil {
				r.Header = c.header
			}
			user, err := a.Authenticate(r)
			if (err != nil) != c.refused || name(user) != c.user {
				t.Errorf("is %q with error %v, want %q and refused=%t", name(user), err, c.user, c.refused)
			}
			if c.user == "alice" && !slices.Equal(user.Groups, []string{"staff", "system:authenticated"}) {
				t.Errorf("is in %v", user.Groups)
			}
			if got := r.Header.Get("Sec-Websocket-Protocol"); got != c.protocol {
				t.Errorf("leaves the protocols %q, want %q", got, c.protocol)
			}
		})
	}
}

func name(u *User) string {
	if u == nil {
		return ""
	}
	return u.Name
}

func TestReviewsAreCachedForTheirTTL(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	server := &api{}
	authn, err := NewAuthenticator(Authentication{TokenReview: true, TokenTTL: 2 * time.Minute}, server, clock)
	if err != nil {
		t.Fatal(err)
	}
	authz, err := NewAuthorizer(Authorization{Mode: Webhook, NodeName: "node", AuthorizedTTL: 5 * time.Minute, UnauthorizedTTL: 30 * time.Second}, server, clock)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer good")
	questions := func(path string) int {
		before := len(server.asked)
		user, err := authn.Authenticate(r)
		if err != nil {
			t.Fatal(err)
		}
		authz.Authorize(t.Context(), user, http.MethodGet, path)
		return len(server.asked) - before
	}
	for _, step := range []struct {
		after time.Duration
		path  string
		want  int
		why   string
	}{
		{0, "/metrics", 2, "nothing is known"},
		{time.Second, "/metrics", 0, "both are"},
		{0, "/logs/", 1, "another question"},
		{29 * time.Second, "/logs/", 0, "the refusal is 29 s old"},
		{2 * time.Second, "/logs/", 1, "the refusal is 31 s old"},
		{2 * time.Minute, "/metrics", 1, "the token's answer is more than 2 min old"},
		{3 * time.Minute, "/metrics", 2, "the permission is more than 5 min old, and the token's answer 3"},
	} {
		clock.Step(step.after)
		if got := questions(step.path); got != step.want {
			t.Errorf("%d questions, want %d: %s", got, step.want, step.why)
		}
	}
}

func TestAuthorizationChecksEachSubresource(t *testing.T) {
	for _, c := range []struct {
		user, method, path string
		message            string
	}{
		{"alice", "GET", "/metrics/resource", ""},
		{"alice", "GET", "/pods", ""},
		{"alice", "POST", "/metrics", "Forbidden (user=alice, verb=create, resource=nodes, subresource(s)=[metrics])\n"},
		{"alice", "GET", "/exec/a/b/c", "Forbidden (user=alice, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"alice", "GET", "/containerLogs/a/b/c", "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[proxy])\n"},
		{"bob", "GET", "/pods", "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
	} {
		a, err := NewAuthorizer(Authorization{Mode: Webhook, NodeName: "node"}, &api{}, clocktesting.NewFakeClock(time.Unix(0, 0)))
		if err != nil {
			t.Fatal(err)
		}
		refusal := a.Authorize(t.Context(), &User{Name: c.user}, c.method, c.path)
		if c.message == "" && refusal != nil || c.message != "" && (refusal == nil || refusal.Message != c.message) {
			t.Errorf("%s %s %s: %+v, want %q", c.user, c.method, c.path, refusal, c.message)
		}
	}
}

func TestAFailedReviewIsNotADecisionAndNotCached(t *testing.T) {
	server := &api{fails: []error{errors.New("broken")}}
	a, err := NewAuthorizer(Authorization{Mode: Webhook, NodeName: "node", AuthorizedTTL: time.Hour, UnauthorizedTTL: time.Hour}, server, clocktesting.NewFakeClock(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	refusal := a.Authorize(t.Context(), &User{Name: "alice"}, http.MethodGet, "/metrics")
	if refusal == nil || !refusal.Failed || refusal.Message != "Authorization error (user=alice, verb=get, resource=nodes, subresource=metrics)" {
		t.Errorf("answered %+v", refusal)
	}
	if refusal := a.Authorize(t.Context(), &User{Name: "alice"}, http.MethodGet, "/metrics"); refusal != nil {
		t.Errorf("answered %+v after the failure", refusal)
	}
}

func TestReviewsAreRetriedAfterTemporaryErrors(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 0)
	for _, c := range []struct {
		fails []error
		works bool
		left  int
	}{
		{[]error{busy, busy}, true, 0},
		{[]error{errors.New("no"), busy}, false, 1},
		{[]error{busy, busy, busy, busy, busy}, false, 0},
	} {
		server := &api{fails: c.fails}
		r := newReviewer(server)
		r.backoff.Duration = time.Nanosecond
		err := r.review(t.Context(), &authenticationv1.TokenReview{})
		if (err == nil) != c.works || len(server.fails) != c.left {
			t.Errorf("%v: ended with %v, %d answers left", c.fails, err, len(server.fails))
		}
	}
}

func TestInvalidModesAreRefused(t *testing.T) {
	if _, err := NewAuthenticator(Authentication{TokenReview: true}, nil, nil); err == nil {
		t.Error("token review without a client is accepted")
	}
	for _, mode := range []string{Webhook, "", "RBAC"} {
		if _, err := NewAuthorizer(Authorization{Mode: mode}, nil, clocktesting.NewFakeClock(time.Now())); err == nil {
			t.Errorf("authorization mode %q works without an API", mode)
		}
	}
}
