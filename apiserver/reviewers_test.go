package apiserver_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"svc.dev/svc/apiserver/admission/imagepolicy"
	"svc.dev/svc/apiserver/admission/serviceaccount"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
)

// enormous writes a response that does not end, and counts what is read of it.
func enormous(w io.Writer) {
	_, _ = io.WriteString(w, `{"metadata": {"annotations": {"a": "`)
	block := []byte(strings.Repeat("a", 1<<20))
	for range 256 {
		if _, err := w.Write(block); err != nil {
			return // the server has closed the connection
		}
	}
}

// hostile are the responses of a webhook that is not to be trusted.
var hostile = map[string]http.HandlerFunc{
	"slow": func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // otherwise the end of the connection is not noticed
		<-req.Context().Done()
	},
	"slow in its response": func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	},
	"closes the connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"no JSON":               func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
	"another kind":          func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Pod"}`) },
	"nested deeply":         func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(`{"status":`, 100_000)) },
	"no verdict": func(w http.ResponseWriter, req *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(review)
	},
	"redirects": func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "http://"+req.Host+"/again", http.StatusTemporaryRedirect)
	},
	"a failure": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	"enormous":  func(w http.ResponseWriter, _ *http.Request) { enormous(w) },
	"enormous, compressed": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		enormous(gzip.NewWriter(w))
	},
}

// backend is a webhook whose responses a test changes.
type backend struct {
	// answer is also read by requests that the server repeats after the one of a test.
	answer atomic.Pointer[http.HandlerFunc]
	file   string // a kubeconfig
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		(*b.answer.Load())(w, req)
	}))
	t.Cleanup(server.Close)
	b.file = write(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, server.URL))
	return b
}

// review checks that no response of a webhook makes the server answer a request of a
// user otherwise than with a refusal, and that all responses leave it able to serve
// others.
func (b *backend) review(t *testing.T, configure func(*options.Options), request func(*running) (int, string, error), want ...int) {
	o, _ := newOptions(t)
	o.Requests.Timeout = 2 * time.Second
	configure(o)
	r := start(t, o)
	for name, answer := range hostile {
		t.Run(name, func(t *testing.T) {
			b.answer.Store(&answer)
			code, body, err := request(r)
			// The server aborts a response that begins when the request's time is up.
			refused := err != nil && strings.Contains(err.Error(), "stream error")
			for _, w := range want {
				refused = refused || code == w
			}
			if !refused || len(body) > 64<<10 {
				t.Errorf("answered %d %.300s, %v, want %v", code, body, err, want)
			}
			// The webhook is not asked for this one, which a slow server may not answer in time.
			await(t, func() (int, string) { return r.get(t, "/api/v1/namespaces/default", false) }, http.StatusOK)
		})
	}
}

func TestAHostileTokenWebhookAuthenticatesNoUser(t *testing.T) {
	b := newBackend(t)
	b.review(t, func(o *options.Options) {
		o.Authentication.Webhook.Version, o.Authentication.Webhook.ConfigFile = "v1", b.file
	}, func(r *running) (int, string, error) {
		return r.try(t, "stranger", http.MethodGet, "/api/v1/namespaces/default", "")
	}, http.StatusUnauthorized, http.StatusGatewayTimeout)
}

func TestAHostileAuthorizationWebhookAllowsNothing(t *testing.T) {
	b := newBackend(t)
	b.review(t, func(o *options.Options) {
		o.Authorization.Modes, o.Authorization.Webhook.File = []string{authorization.Webhook}, b.file
		o.Authentication.TokenAuthFile = write(t, adminToken+",admin,1,system:masters\nuser,user,2\n")
	}, func(r *running) (int, string, error) {
		return r.try(t, "user", http.MethodGet, "/api/v1/namespaces/default", "")
	}, http.StatusForbidden, http.StatusGatewayTimeout, http.StatusInternalServerError)
}

// TestARulesReviewSaysWhatIsMissing reviews the rules of a node and of a user in the modes
// Node and Webhook, of which the first cannot list all rules and the second none.
func TestARulesReviewSaysWhatIsMissing(t *testing.T) {
	b := newBackend(t)
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": {"allowed": false}}`)
	})
	b.answer.Store(&refuse)
	s := newStage(t, "", func(o *options.Options) {
		o.Authorization.Modes = []string{authorization.Node, authorization.RBAC, authorization.Webhook}
		o.Authorization.Webhook.File = b.file
	})
	const node, webhook = "node authorizer does not support user rule resolution of the objects that pods refer to", "webhook authorizer does not support user rule resolution"
	for user, want := range map[string]struct {
		rules, missing []string
	}{
		"n1":      {[]string{`"csidrivers"`, `"selfsubjectrulesreviews"`}, []string{node, webhook}},
		"mallory": {[]string{`"selfsubjectrulesreviews"`}, []string{webhook}},
	} {
		code, body := s.request(user, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec": {"namespace": "default"}}`, nil)
		var review authorizationv1.SelfSubjectRulesReview
		if err := json.Unmarshal([]byte(body), &review); err != nil || code != http.StatusCreated {
			t.Fatalf("%s: %d %s, %v", user, code, body, err)
		}
		if !review.Status.Incomplete {
			t.Errorf("%s: the review is complete", user)
		}
		for _, missing := range []string{node, webhook} {
			if strings.Contains(review.Status.EvaluationError, missing) != slices.Contains(want.missing, missing) {
				t.Errorf("%s: missing are %s, want %s", user, review.Status.EvaluationError, want.missing)
			}
		}
		for _, rule := range want.rules {
			if !strings.Contains(body, rule) {
				t.Errorf("%s: there is no rule about %s", user, rule)
			}
		}
	}
}

func TestAHostileImagePolicyBackendAdmitsNoPod(t *testing.T) {
	b := newBackend(t)
	b.review(t, func(o *options.Options) {
		o.Admission.EnablePlugins = []string{imagepolicy.PluginName}
		o.Admission.DisablePlugins = []string{serviceaccount.PluginName}
		o.Admission.ConfigFile = write(t, `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{"name": "ImagePolicyWebhook",
"configuration": {"imagePolicy": {"kubeConfigFile": "`+b.file+`", "allowTTL": -1, "denyTTL": -1, "retryBackoff": 1}}}]}`)
	}, func(r *running) (int, string, error) {
		return r.try(t, adminToken, http.MethodPost, "/api/v1/namespaces/default/pods?dryRun=All", `{"metadata": {"generateName": "victim-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`)
	}, http.StatusForbidden, http.StatusGatewayTimeout)
}
