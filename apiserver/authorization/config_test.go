package authorization

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics/legacyregistry"
)

// reviewer is a webhook that allows the users in a list.
type reviewer struct {
	allowed atomic.Pointer[[]string]
	broken  atomic.Bool
	asked   atomic.Int32
}

// kubeconfig starts the webhook and returns a kubeconfig that names it.
func (r *reviewer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		if r.broken.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			t.Error(err)
		}
		review.Status.Allowed = slices.Contains(*r.allowed.Load(), review.Spec.User)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return writeFile(t, "webhook.yaml", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]}`)
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func decide(t *testing.T, a Authorizer, name string) authorizer.Decision {
	t.Helper()
	decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name}, Verb: "list", Resource: "pods", ResourceRequest: true,
	})
	if err != nil {
		t.Log(err)
	}
	return decision
}

func TestOwnGrantsApplyInEveryMode(t *testing.T) {
	hook := &reviewer{}
	hook.allowed.Store(&[]string{})
	policies := filepath.Join(t.TempDir(), "policies")
	if err := os.WriteFile(policies, []byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"jane","resource":"pods","apiGroup":"*","namespace":"*"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	webhook := WebhookConfig{File: hook.kubeconfig(t), Version: "v1"}
	for _, config := range []Config{
		{},
		{Modes: []string{Webhook}, Webhook: webhook},
		{Modes: []string{ABAC}, PolicyFile: policies},
		{Modes: []string{AlwaysDeny}},
	} {
		config.Own = Grants{{User: "own", Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}}
		a, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]authorizer.Decision{"own": authorizer.DecisionAllow, "other": authorizer.DecisionNoOpinion} {
			if got := decide(t, a, name); got != want {
				t.Errorf("%v: %s: %v, want %v", config.Modes, name, got, want)
			}
		}
	}
}

func TestTheModeWebhookAsksTheServerOfTheFlags(t *testing.T) {
	hook := &reviewer{}
	hook.allowed.Store(&[]string{"jane"})
	config := NewConfig()
	config.Modes, config.Webhook.File, config.Webhook.Version = []string{Webhook}, hook.kubeconfig(t), "v1"
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := decide(t, a, "jane"); got != authorizer.DecisionAllow {
			t.Errorf("jane: %v", got)
		}
		if got := decide(t, a, "joe"); got != authorizer.DecisionNoOpinion {
			t.Errorf("joe: %v", got)
		}
	}
	if asked := hook.asked.Load(); asked != 2 {
		t.Errorf("asked %d times, want once for each user", asked)
	}
}

const structured = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: company
  webhook:
    timeout: 30s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    authorizedTTL: 1ms
    unauthorizedTTL: 1ms
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: FILE}
    matchConditions: [{expression: "request.user != 'local'"}]
- {type: AlwaysAllow, name: alwaysallow}
`

func TestTheFileConfiguresWebhooks(t *testing.T) {
	hook := &reviewer{}
	hook.allowed.Store(&[]string{"jane"})
	config := NewConfig()
	config.File = writeFile(t, "config.yaml", strings.Replace(structured, "FILE", hook.kubeconfig(t), 1))
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if !a.AllowsAll {
		t.Error("AlwaysAllow is not reported")
	}
	hook.broken.Store(true)
	if got := decide(t, a, "local"); got != authorizer.DecisionAllow {
		t.Errorf("a user that the match conditions exclude: %v", got)
	}
	if got := decide(t, a, "jane"); got != authorizer.DecisionDeny {
		t.Errorf("failurePolicy Deny, webhook broken: %v", got)
	}
	hook.broken.Store(false)
	if got := decide(t, a, "jane"); got != authorizer.DecisionAllow {
		t.Errorf("jane: %v", got)
	}
}

func TestTheFileIsReloaded(t *testing.T) {
	config := NewConfig()
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	// AlwaysDeny has no opinion: the webhook decides.
	hook := &reviewer{}
	hook.allowed.Store(&[]string{"jane"})
	deny := head + "- {type: AlwaysDeny, name: alwaysdeny}\n"
	webhook := strings.NewReplacer("FILE", hook.kubeconfig(t), "- {type: AlwaysAllow, name: alwaysallow}\n", "- {type: AlwaysDeny, name: alwaysdeny}\n").Replace(structured)
	config.File = writeFile(t, "config.yaml", webhook)
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Reload(ctx, "test") }()
	defer func() { stop(); <-done }()
	if got := decide(t, a, "jane"); got != authorizer.DecisionAllow {
		t.Fatalf("at the start: %v", got)
	}
	replace := func(content string) {
		t.Helper()
		next := config.File + ".next"
		if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, config.File); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want authorizer.Decision) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return decide(t, a, "jane") == want, nil
		}); err != nil {
			t.Fatalf("want %v: %v", want, err)
		}
	}
	succeeded, failed := reloads(t, "success"), reloads(t, "failure")
	counted := func(status string, want float64) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return reloads(t, status) == want, nil
		}); err != nil {
			t.Fatalf("%v reloads are counted as %s, want %v", reloads(t, status), status, want)
		}
	}
	replace(deny)
	await(authorizer.DecisionNoOpinion)
	counted("success", succeeded+1)
	replace(deny + "- {type: RBAC, name: rbac}\n") // cannot be added: the previous one stays
	counted("failure", failed+1)
	await(authorizer.DecisionNoOpinion)
	replace(webhook)
	await(authorizer.DecisionAllow)
	counted("success", succeeded+2)
}

// reloads returns the metric of reloads with a status.
func reloads(t *testing.T, status string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_authorization_config_controller_automatic_reloads_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "status" && l.GetValue() == status }) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestAReloadThatIsRefusedChangesNothing(t *testing.T) {
	config := NewConfig()
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	const all = "- {type: AlwaysAllow, name: alwaysallow}\n"
	const others = "- {type: AlwaysDeny, name: alwaysdeny}\n- {type: RBAC, name: rbac}\n"
	config.File = writeFile(t, "config.yaml", head+all+others)
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"": "the file is empty; write a YAML document",
		head + all + others + "- {type: Node, name: node}\n": "line 7: authorizers[3]: type Node cannot be added while the server runs, restart it",
		head + all:                                        "types AlwaysDeny, RBAC cannot be removed while the server runs, restart it",
		head + "- {type: Magic, name: all}\n":             `authorizers[0].type: Unsupported value: "Magic"`,
		head + "- {type: AlwaysAllow, name: a}\n":         "line 4: authorizers[0].name: Invalid value: \"a\": must be alwaysallow for type AlwaysAllow",
		"authorizers: [":                                  "did not find expected node content",
		head + "- {type: AlwaysAllow, name: all, x: y}\n": `unknown field "authorizers[0].x"`,
	} {
		if err := os.WriteFile(config.File, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.reload(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), config.File) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
		if got := decide(t, a, "jane"); got != authorizer.DecisionAllow {
			t.Errorf("after %q: %v", content, got)
		}
	}
}

func TestNodesHavePermissionsWithTheModeNode(t *testing.T) {
	for modes, want := range map[string]bool{"": true, "Node,RBAC": true, "RBAC": false, "RBAC,AlwaysDeny": false, "AlwaysAllow": true, "RBAC,Webhook": true} {
		config := Config{Modes: slices.DeleteFunc(strings.Split(modes, ","), func(m string) bool { return m == "" })}
		if got := config.PermitsNodes(); got != want {
			t.Errorf("%q: %v", modes, got)
		}
	}
}
