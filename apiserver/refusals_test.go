package apiserver_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"svc.dev/svc/apiserver/authentication/jwt/jwttest"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
)

// credential is what a client presents to authenticate.
type credential struct {
	token     string
	websocket bool // the token is in the subprotocol of a websocket
	cert      *tls.Certificate
	header    map[string]string
}

// refusal is a credential that is refused, and what the log says of it.
type refusal struct {
	rule string
	credential
	log string
}

// invalidToken is what the log says of a token that no method recognises.
const invalidToken = "invalid bearer token"

// refusalStage is a server with all methods of authentication.
type refusalStage struct {
	stage
	issuer     *jwttest.Issuer
	authority  *pki.PKI
	signingKey string // the file of the key of service account tokens
}

// newRefusalStage starts the server.
func newRefusalStage(t *testing.T) refusalStage {
	t.Helper()
	s := refusalStage{issuer: jwttest.New(t)}
	var err error
	if s.authority, err = pki.Open(pki.Config{Dir: t.TempDir(), ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	hook := newBackend(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if review.Spec.Token == "hook-token" {
			review.Status.Error = "the webhook has locked the user"
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	})
	hook.answer.Store(&answer)
	var o *options.Options
	s.stage = newStage(t, "", func(made *options.Options) {
		o = made
		o.Authentication.BootstrapTokens = true
		o.Authentication.ClientCAFile = s.authority.Certificate("ca")
		o.Authentication.RequestHeader.ClientCAFile = s.authority.Certificate("front-proxy-ca")
		o.Authentication.RequestHeader.AllowedNames = []string{pki.FrontProxyClient}
		o.Authentication.ConfigFile = write(t, fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [cluster], certificateAuthority: %q}
  claimMappings: {username: {expression: claims.sub}}
`, s.issuer.URL, s.issuer.Authority))
		o.Authentication.Webhook.Version, o.Authentication.Webhook.ConfigFile = "v1", hook.file
	})
	s.signingKey = o.ServiceAccounts.SigningKeyFile
	return s
}

// TestClientsDoNotLearnWhyACredentialIsRefused compares the response to each refused
// credential with that to a token that is a guess: status, headers and body. The log has the
// reason, and no token. It does so in a process of its own, whose log it reads.
func TestClientsDoNotLearnWhyACredentialIsRefused(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(3)))
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	log := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
	s := newRefusalStage(t)
	all := append(s.accounts(), s.foreign()...)
	all = append(all, s.bootstraps()...)
	all = append(all, s.certificates()...)
	all = append(all, refusal{"a token of no form", credential{token: "guess-2"}, invalidToken})
	for _, header := range []bool{true, false} {
		wantCode, wantHeader, wantBody := s.answer(credential{token: "guess", websocket: !header})
		if wantCode != http.StatusUnauthorized {
			t.Fatalf("a guess: %d %s", wantCode, wantBody)
		}
		for _, test := range all {
			if test.websocket = !header; test.websocket && test.token == "" {
				continue
			}
			before := len(log())
			code, got, body := s.answer(test.credential)
			if code != wantCode || body != wantBody || !maps.EqualFunc(got, wantHeader, func(a, b []string) bool { return strings.Join(a, ",") == strings.Join(b, ",") }) {
				t.Errorf("%s (websocket: %t):\n%d %v %s, want as for a guess\n%d %v %s", test.rule, test.websocket, code, got, body, wantCode, wantHeader, wantBody)
			}
			said := log()[before:]
			if !strings.Contains(said, test.log) {
				t.Errorf("%s: the log does not say %q:\n%s", test.rule, test.log, said)
			}
			if test.token != "" && strings.Contains(said, test.token) {
				t.Errorf("%s: the log has the token:\n%s", test.rule, said)
			}
		}
	}
}

// answer makes a request on a connection of its own, and returns the status, the headers
// that do not differ by request, and the body.
func (s *refusalStage) answer(c credential) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/api/v1/namespaces?watch=true", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if c.cert != nil {
		config.Certificates = []tls.Certificate{*c.cert}
	}
	for key, value := range c.header {
		req.Header.Set(key, value)
	}
	switch {
	case c.websocket:
		for key, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": s.url,
			"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(c.token)) + ", base64.binary.k8s.io",
		} {
			req.Header.Set(key, value)
		}
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body := ""
	if resp.StatusCode >= http.StatusMultipleChoices {
		content, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		body = string(content)
	}
	resp.Header.Del("Audit-Id")
	resp.Header.Del("Date")
	return resp.StatusCode, resp.Header, body
}

// accepted fails the test unless a credential is accepted, in the end.
func (s *refusalStage) accepted(rule string, c credential) {
	s.t.Helper()
	await(s.t, func() (int, string) {
		code, _, body := s.answer(c)
		if code == http.StatusForbidden {
			return http.StatusOK, "" // the user has no rights
		}
		return code, rule + ": " + body
	}, http.StatusOK)
}

// signed returns a token with claims that a key has signed by ES256.
func signed(t *testing.T, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// accounts returns tokens of service accounts that are refused.
func (s *refusalStage) accounts() []refusal {
	const core = "/api/v1/namespaces/default"
	uid := func(created string) string {
		var object struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal([]byte(created), &object); err != nil {
			s.t.Fatal(err)
		}
		return object.Metadata.UID
	}
	account := map[string]string{}
	for _, name := range []string{"kept", "revoked"} {
		account[name] = uid(s.must(http.MethodPost, core+"/serviceaccounts", `{"metadata": {"name": "`+name+`"}}`))
	}
	podUID := uid(s.must(http.MethodPost, core+"/pods", pod("deleted", "", "kept")))
	issued := func(account, spec string) string {
		var request authenticationv1.TokenRequest
		if err := json.Unmarshal([]byte(s.must(http.MethodPost, core+"/serviceaccounts/"+account+"/token", `{"spec": {`+spec+`}}`)), &request); err != nil {
			s.t.Fatal(err)
		}
		return request.Status.Token
	}
	pem, err := os.ReadFile(s.signingKey)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		s.t.Fatal(err)
	}
	claims := func(expiry time.Duration) map[string]any {
		now := time.Now()
		return map[string]any{
			"iss": "https://issuer", "aud": []string{"https://issuer"}, "sub": "system:serviceaccount:default:kept", "iat": now.Add(-2 * time.Hour).Unix(),
			"exp": now.Add(expiry).Unix(), "kubernetes.io": map[string]any{"namespace": "default", "serviceaccount": map[string]any{"name": "kept", "uid": account["kept"]}},
		}
	}
	valid, revoked := signed(s.t, key, claims(time.Hour)), issued("revoked", "")
	ofPod := issued("kept", `"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "deleted", "uid": "`+podUID+`"}`)
	for _, token := range []string{valid, revoked, ofPod} {
		s.accepted("a token of an account", credential{token: token})
	}
	s.must(http.MethodDelete, core+"/serviceaccounts/revoked", "")
	s.must(http.MethodDelete, core+"/pods/deleted?gracePeriodSeconds=0", "")
	// The result of a token is used for ten seconds at the most (document 2, section 5).
	for _, token := range []string{revoked, ofPod} {
		await(s.t, func() (int, string) { code, _, body := s.answer(credential{token: token}); return code, body }, http.StatusUnauthorized)
	}
	parts := strings.Split(valid, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	legacy := map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:kept", "kubernetes.io/serviceaccount/namespace": "default",
		"kubernetes.io/serviceaccount/secret.name": "no-secret", "kubernetes.io/serviceaccount/service-account.name": "kept",
		"kubernetes.io/serviceaccount/service-account.uid": account["kept"],
	}
	return []refusal{
		{"an expired token of an account", credential{token: signed(s.t, key, claims(-time.Hour))}, "service account token has expired"},
		{"a token of an account by an unknown key", credential{token: signed(s.t, s.issuer.Key().Key, claims(time.Hour))}, "service account token: go-jose/go-jose: error in cryptographic primitive"},
		{"a token of an account by a key ID that is unknown", credential{token: signed(s.t, s.issuer.Key(), claims(time.Hour))}, "service account token: invalid signature, no keys found"},
		{"a token of an account without signature", credential{token: none}, invalidToken},
		{"a token of an account for another audience", credential{token: issued("kept", `"audiences": ["vault"]`)}, "are not among the target audiences"},
		{"a token of a deleted account", credential{token: revoked}, `serviceaccounts \"revoked\" not found`},
		{"a token of a deleted pod", credential{token: ofPod}, `pods \"deleted\" not found`},
		{"a token of a deleted secret", credential{token: signed(s.t, key, legacy)}, `secrets \"no-secret\" not found`},
	}
}

// foreign returns tokens of an issuer, and of a webhook, that are refused.
func (s *refusalStage) foreign() []refusal {
	claims := func(audience string, expiry time.Duration) map[string]any {
		return map[string]any{"iss": s.issuer.URL, "sub": "ann", "aud": audience, "exp": time.Now().Add(expiry).Unix()}
	}
	// Until the issuer has answered, its tokens are rejected.
	s.accepted("a token of the issuer", credential{token: s.issuer.Token(claims("cluster", time.Hour))})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	nameless := claims("cluster", time.Hour)
	delete(nameless, "sub")
	return []refusal{
		{"an expired token of the issuer", credential{token: s.issuer.Token(claims("cluster", -time.Hour))}, "oidc: verify token: oidc: token is expired"},
		{"a token of the issuer by an unknown key", credential{token: signed(s.t, key, claims("cluster", time.Hour))}, "oidc: verify token: failed to verify signature"},
		{"a token of the issuer for another audience", credential{token: s.issuer.Token(claims("vault", time.Hour))}, "oidc: verify token: oidc: expected audience"},
		{"a token of the issuer without a name", credential{token: s.issuer.Token(nameless)}, "oidc: error evaluating username claim expression"},
		{"a token of another issuer", credential{token: signed(s.t, key, map[string]any{"iss": "https://stranger", "sub": "ann"})}, invalidToken},
		{"a token that the webhook rejects", credential{token: "hook-token"}, "the webhook has locked the user"},
	}
}

// bootstraps returns bootstrap tokens that are refused.
func (s *refusalStage) bootstraps() []refusal {
	secret := func(id, more string) {
		s.must(http.MethodPost, "/api/v1/namespaces/kube-system/secrets", fmt.Sprintf(`{"metadata": {"name": "bootstrap-token-%s"}, "type": "bootstrap.kubernetes.io/token",
			"stringData": {"token-id": %q, "token-secret": "0123456789abcdef"%s}}`, id, id, more))
	}
	secret("valid0", `, "usage-bootstrap-authentication": "true"`)
	secret("ended0", `, "usage-bootstrap-authentication": "true", "expiration": "2020-01-01T00:00:00Z"`)
	secret("signs0", `, "usage-bootstrap-signing": "true"`)
	s.accepted("a bootstrap token", credential{token: "valid0.0123456789abcdef"})
	return []refusal{
		{"an expired bootstrap token", credential{token: "ended0.0123456789abcdef"}, "it has expired"},
		{"a bootstrap token for another usage", credential{token: "signs0.0123456789abcdef"}, `usage-bootstrap-authentication is not \"true\"`},
		{"a bootstrap token with another key", credential{token: "valid0.0123456789abcdee"}, "token-secret differs"},
		{"a bootstrap token that does not exist", credential{token: "absent.0123456789abcdef"}, "its secret does not exist"},
	}
}

// certificates returns client certificates that are refused.
func (s *refusalStage) certificates() []refusal {
	stranger, err := pki.Open(pki.Config{Dir: s.t.TempDir(), ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)}})
	if err != nil {
		s.t.Fatal(err)
	}
	load := func(from *pki.PKI, name string) *tls.Certificate {
		pair, err := tls.LoadX509KeyPair(from.Certificate(name), from.Key(name))
		if err != nil {
			s.t.Fatal(err)
		}
		return &pair
	}
	issue := func(by, name string, expiry time.Duration) *tls.Certificate {
		authority, now := load(s.authority, by), time.Now()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			s.t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(expiry),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, authority.Leaf, key.Public(), authority.PrivateKey.(crypto.Signer))
		if err != nil {
			s.t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	eve := map[string]string{"X-Remote-User": "eve"}
	s.accepted("a client certificate", credential{cert: issue("ca", "ann", time.Hour)})
	s.accepted("a proxy", credential{cert: load(s.authority, pki.FrontProxyClient), header: eve})
	return []refusal{
		{"an expired client certificate", credential{cert: issue("ca", "ann", -time.Hour)}, "certificate has expired or is not yet valid"},
		{"a client certificate of another authority", credential{cert: load(stranger, "admin")}, "certificate signed by unknown authority"},
		{"a certificate of a server", credential{cert: load(s.authority, "apiserver")}, "certificate specifies an incompatible key usage"},
		{"a proxy of another name", credential{cert: issue("front-proxy-ca", "stranger", time.Hour), header: eve}, "x509: subject with cn=stranger is not in the allowed list"},
		{"an expired proxy", credential{cert: issue("front-proxy-ca", pki.FrontProxyClient, -time.Hour), header: eve}, "certificate has expired or is not yet valid"},
		{"a proxy of another authority", credential{cert: load(stranger, pki.FrontProxyClient), header: eve}, "certificate signed by unknown authority"},
		{"a proxy without a user", credential{cert: load(s.authority, pki.FrontProxyClient)}, "certificate signed by unknown authority"},
	}
}
