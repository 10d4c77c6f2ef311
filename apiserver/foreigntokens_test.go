package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/authentication/jwt/jwttest"
	"svc.dev/svc/apiserver/options"
)

const selfReview = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// write writes a file of a test and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// structured returns an AuthenticationConfiguration of an issuer, which lets anonymous
// requests read one path.
func structured(issuer *jwttest.Issuer) string {
	return fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [cluster], certificateAuthority: %q}
  claimMappings:
    username: {expression: "'oidc:' + claims.sub"}
    groups: {expression: claims.groups}
anonymous:
  enabled: true
  conditions: [{path: /livez}]
`, issuer.URL, issuer.Authority)
}

func TestTokensOfAForeignIssuerAuthenticate(t *testing.T) {
	issuer := jwttest.New(t)
	o, _ := newOptions(t)
	o.Authentication.ConfigFile = write(t, structured(issuer))
	r := start(t, o)
	token := issuer.Token(map[string]any{"sub": "ann", "groups": []string{"dev"}, "aud": "cluster", "exp": time.Now().Add(time.Hour).Unix()})
	// Until the issuer has answered, its tokens are rejected.
	deadline := time.Now().Add(time.Minute)
	for {
		code, body := r.as(t, token, http.MethodPost, selfReview, `{}`)
		if code == http.StatusCreated {
			if want := `"username":"oidc:ann","groups":["dev","system:authenticated"]`; !strings.Contains(body, want) {
				t.Errorf("answered %s, want %s", body, want)
			}
			break
		}
		if code != http.StatusUnauthorized || time.Now().After(deadline) {
			t.Fatalf("answered %d %s", code, body)
		}
	}
	expired := issuer.Token(map[string]any{"sub": "ann", "groups": []string{}, "aud": "cluster", "exp": time.Now().Add(-time.Hour).Unix()})
	for _, test := range []struct {
		rule, token, method, path, body string
		code                            int
	}{
		{"an expired token is rejected", expired, http.MethodPost, selfReview, `{}`, http.StatusUnauthorized},
		{"an anonymous request passes on a path of the file", "", http.MethodGet, "/livez", "", http.StatusOK},
		{"and on no other, although it may read it", "", http.MethodGet, "/version", "", http.StatusUnauthorized},
	} {
		code, body := r.as(t, test.token, test.method, test.path, test.body)
		if code != test.code || strings.Contains(body, "expire") {
			t.Errorf("%s: answered %d %s", test.rule, code, body)
		}
	}
}

func TestATokenInTheSubprotocolOfAWebsocketAuthenticates(t *testing.T) {
	o, _ := newOptions(t)
	r := start(t, o)
	for token, want := range map[string]bool{adminToken: true, "guess": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/namespaces?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": r.url,
			"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", base64.binary.k8s.io",
		} {
			req.Header.Set(key, value)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if upgraded := resp.StatusCode == http.StatusSwitchingProtocols; upgraded != want || strings.Contains(resp.Header.Get("Sec-WebSocket-Protocol"), "bearer") {
			t.Errorf("with the token %s: %d %v", token, resp.StatusCode, resp.Header)
		}
	}
}

func TestAWebhookReviewsOtherTokensAndItsAnswersAreCached(t *testing.T) {
	var reviews atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reviews.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if review.Spec.Token == adminToken {
			t.Error("the webhook got a token of --token-auth-file")
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == "hooked", User: authenticationv1.UserInfo{Username: "bob"}}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer hook.Close()
	o, _ := newOptions(t)
	o.Authentication.Webhook.Version = "v1"
	o.Authentication.Webhook.ConfigFile = write(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, hook.URL))
	r := start(t, o)
	for range 3 {
		if code, body := r.as(t, "hooked", http.MethodPost, selfReview, `{}`); code != http.StatusCreated || !strings.Contains(body, `"username":"bob"`) {
			t.Errorf("answered %d %s", code, body)
		}
	}
	if code, body := r.as(t, "guess", http.MethodPost, selfReview, `{}`); code != http.StatusUnauthorized {
		t.Errorf("a token that the webhook rejects: answered %d %s", code, body)
	}
	if code, _ := r.as(t, adminToken, http.MethodPost, selfReview, `{}`); code != http.StatusCreated {
		t.Errorf("the server's own token: answered %d", code)
	}
	if n := reviews.Load(); n != 2 {
		t.Errorf("the webhook was asked %d times, want twice", n)
	}
}

// TestTheTokenWebhookIsAskedAsTheFlagsSay asks for a token that is refused: the server caches
// those that are not for ten seconds in any case.
func TestTheTokenWebhookIsAskedAsTheFlagsSay(t *testing.T) {
	for _, test := range []struct {
		version string
		ttl     time.Duration
		reviews int32
	}{
		{"v1beta1", time.Hour, 1}, {"v1beta1", 0, 3}, {"v1", 0, 3},
	} {
		t.Run(fmt.Sprintf("%s, cached for %s", test.version, test.ttl), func(t *testing.T) {
			var reviews atomic.Int32
			b := newBackend(t)
			answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				reviews.Add(1)
				var review map[string]any
				if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				if want := "authentication.k8s.io/" + test.version; review["apiVersion"] != want || review["kind"] != "TokenReview" {
					t.Errorf("the review is %v, want the version %s", review, want)
				}
				spec, _ := review["spec"].(map[string]any)
				review["status"] = map[string]any{"authenticated": spec["token"] == "hooked", "user": map[string]any{"username": "bob"}}
				if err := json.NewEncoder(w).Encode(review); err != nil {
					t.Error(err)
				}
			})
			b.answer.Store(&answer)
			o, _ := newOptions(t)
			o.Authentication.Webhook.Version, o.Authentication.Webhook.CacheTTL, o.Authentication.Webhook.ConfigFile = test.version, test.ttl, b.file
			r := start(t, o)
			for range 3 {
				if code, body := r.as(t, "guess", http.MethodPost, selfReview, `{}`); code != http.StatusUnauthorized {
					t.Errorf("answered %d %s", code, body)
				}
			}
			if n := reviews.Load(); n != test.reviews {
				t.Errorf("the webhook was asked %d times, want %d", n, test.reviews)
			}
			if code, body := r.as(t, "hooked", http.MethodPost, selfReview, `{}`); code != http.StatusCreated || !strings.Contains(body, `"username":"bob"`) {
				t.Errorf("answered %d %s", code, body)
			}
		})
	}
}

func TestABadFileOfAuthenticationNamesItsFlag(t *testing.T) {
	issuer := jwttest.New(t)
	for _, test := range []struct {
		rule   string
		change func(*options.Authentication)
		want   string
	}{
		{"a file that is not YAML", func(a *options.Authentication) { a.ConfigFile = write(t, "jwt: [") }, "--authentication-config "},
		{"an unknown field", func(a *options.Authentication) { a.ConfigFile = write(t, structured(issuer)+"nope: 1\n") }, "nope"},
		{"an expression that does not compile", func(a *options.Authentication) {
			a.ConfigFile = write(t, strings.ReplaceAll(structured(issuer), "claims.groups", "claims.groups +"))
		}, "jwt[0].claimMappings.groups.expression"},
		{"an issuer without TLS", func(a *options.Authentication) {
			a.ConfigFile = write(t, strings.ReplaceAll(structured(issuer), "https:", "http:"))
		}, "jwt[0].issuer.url"},
		{"anonymous requests by file and flag", func(a *options.Authentication) {
			a.ConfigFile, a.AnonymousSet = write(t, structured(issuer)), true
		}, "--anonymous-auth"},
		{"an authority that is none", func(a *options.Authentication) {
			a.OIDC.IssuerURL, a.OIDC.ClientID, a.OIDC.CAFile = issuer.URL, "c", write(t, "no PEM")
		}, "--oidc-*: jwt[0].issuer.certificateAuthority"},
		{"a webhook without a server", func(a *options.Authentication) { a.Webhook.ConfigFile = write(t, "{}") }, "--authentication-token-webhook-config-file "},
	} {
		t.Run(test.rule, func(t *testing.T) {
			o := options.New()
			o.Etcd.Servers = []string{"http://127.0.0.1:1"}
			test.change(&o.Authentication)
			if _, err := apiserver.New(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
