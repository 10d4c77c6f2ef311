package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apis/resource"
)

const issuerName = "https://kubernetes.default.svc.cluster.local"

// start is when the tokens of the tests are issued.
var start = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// The keys of the tests: RSA takes long to make.
var (
	rsaKey   = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	p256Key  = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	p384Key  = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
	p521Key  = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)) })
	otherKey = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
)

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// privatePEM and publicPEM return the contents of a key's file.
func privatePEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

func publicPEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))})
}

func file(t testing.TB, content ...[]byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, slices.Concat(content...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// fixture is the issuer and authenticator of a server, and the objects that tokens refer to.
type fixture struct {
	clock    *clocktesting.FakeClock
	objects  map[string]metav1.Object // by resource/namespace/name
	issuer   *Issuer
	accept   AuthenticatorConfig
	audience context.Context
}

func newFixture(t testing.TB, key crypto.Signer) *fixture {
	t.Helper()
	keys, err := LoadKeys([]string{file(t, publicPEM(key))}, file(t, privatePEM(key)))
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{clock: clocktesting.NewFakeClock(start), objects: map[string]metav1.Object{}, audience: t.Context()}
	w.add("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: "sa-1"}})
	w.add("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "pod-1"}})
	w.add("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "key", UID: "secret-1"}})
	w.add("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}})
	audiences := request().Audiences
	if w.issuer, err = NewIssuer(IssuerConfig{Keys: keys, Issuer: issuerName, Audiences: audiences, ExtendMounted: true, Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	w.accept = AuthenticatorConfig{Keys: keys, Issuers: []string{issuerName}, Audiences: audiences, Lookup: true, Cached: w.get, Get: w.get, Clock: w.clock, CredentialIDs: true}
	return w
}

func (w *fixture) add(kind string, obj metav1.Object) {
	w.objects[kind+"/"+obj.GetNamespace()+"/"+obj.GetName()] = obj
}

func (w *fixture) get(_ context.Context, gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
	if obj, ok := w.objects[gr.Resource+"/"+namespace+"/"+name]; ok {
		return obj.(runtime.Object), nil
	}
	return nil, apierrors.NewNotFound(gr, name)
}

// request is a TokenRequest of the test account for an hour and the API server.
func request(change ...func(*resource.TokenRequest)) resource.TokenRequest {
	r := resource.TokenRequest{
		Namespace: "shop", Account: resource.Referent{Name: "till", UID: "sa-1"}, Audiences: []string{issuerName, "api"}, Lifetime: time.Hour,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func toPod(r *resource.TokenRequest) { r.Pod = &resource.Referent{Name: "web", UID: "pod-1"} }
func onNode(r *resource.TokenRequest) {
	r.Node = &resource.Referent{Name: "n1", UID: "node-1"}
}
func toSecret(r *resource.TokenRequest) { r.Secret = &resource.Referent{Name: "key", UID: "secret-1"} }
func forAudience(a ...string) func(*resource.TokenRequest) {
	return func(r *resource.TokenRequest) { r.Audiences = a }
}

func (w *fixture) issue(t testing.TB, r resource.TokenRequest) string {
	t.Helper()
	issued, err := w.issuer.Issue(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}

// authenticate returns in one line the user of a token, why the token is refused,
// or "unknown" if the authenticator has no opinion.
func (w *fixture) authenticate(token string) string {
	response, ok, err := NewAuthenticator(w.accept).AuthenticateToken(w.audience, token)
	switch {
	case err != nil:
		return "refused: " + err.Error()
	case !ok:
		return "unknown"
	}
	who := response.User
	var extra []string
	for _, key := range slices.Sorted(maps.Keys(who.GetExtra())) {
		if value := who.GetExtra()[key][0]; !strings.HasPrefix(value, "JTI=") {
			extra = append(extra, strings.TrimPrefix(key, "authentication.kubernetes.io/")+"="+value)
		} else {
			extra = append(extra, "jti")
		}
	}
	return fmt.Sprintf("%s %s %v %v for %v", who.GetName(), who.GetUID(), who.GetGroups(), extra, response.Audiences)
}

const till = "system:serviceaccount:shop:till sa-1 [system:serviceaccounts system:serviceaccounts:shop] "

func TestAcceptedAndRefusedTokens(t *testing.T) {
	const ours = " for [" + issuerName + " api]"
	deleted := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: start.Add(-ago)} }
	for _, test := range []struct {
		rule    string
		request resource.TokenRequest
		then    func(w *fixture)
		want    string
	}{
		{"an account's token", request(), nil, till + "[jti]" + ours},
		{"a token that is bound to a pod names the pod", request(toPod), nil, till + "[jti pod-name=web pod-uid=pod-1]" + ours},
		{"and its node", request(toPod, onNode), nil, till + "[jti node-name=n1 node-uid=node-1 pod-name=web pod-uid=pod-1]" + ours},
		{"whether the node exists or not", request(toPod, onNode), func(w *fixture) { delete(w.objects, "nodes//n1") },
			till + "[jti node-name=n1 node-uid=node-1 pod-name=web pod-uid=pod-1]" + ours},
		{"a token that is bound to a node names the node", request(onNode), nil, till + "[jti node-name=n1 node-uid=node-1]" + ours},
		{"a token that is bound to a secret", request(toSecret), nil, till + "[jti]" + ours},
		{"a token for one of the server's audiences", request(forAudience("api", "vault")), nil, till + "[jti] for [api]"},
		{"the credential and the node are not told before release 1.30", request(toPod, onNode), func(w *fixture) { w.accept.CredentialIDs = false }, till + "[pod-name=web pod-uid=pod-1]" + ours},
		{"of a second issuer", request(), func(w *fixture) { w.accept.Issuers = []string{"https://new", issuerName} }, till + "[jti]" + ours},
		{"at its end, within the difference of clocks", request(), func(w *fixture) { w.clock.Step(time.Hour + time.Minute) }, till + "[jti]" + ours},
		{"a mounted token after the requested hour", request(toPod, func(r *resource.TokenRequest) { r.Lifetime = mountedLifetime }),
			func(w *fixture) { w.clock.Step(300 * 24 * time.Hour) }, till + "[jti pod-name=web pod-uid=pod-1]" + ours},
		{"of a pod that terminates", request(toPod), func(w *fixture) { w.objects["pods/shop/web"].SetDeletionTimestamp(deleted(30 * time.Second)) },
			till + "[jti pod-name=web pod-uid=pod-1]" + ours},

		{"expired", request(), func(w *fixture) { w.clock.Step(time.Hour + time.Minute + time.Second) }, "refused: service account token has expired"},
		{"not yet valid", request(), func(w *fixture) { w.clock.Step(-2 * time.Minute) }, "refused: service account token is not valid yet"},
		{"a mounted token after a year", request(toPod, func(r *resource.TokenRequest) { r.Lifetime = mountedLifetime }),
			func(w *fixture) { w.clock.Step(366 * 24 * time.Hour) }, "refused: service account token has expired"},
		{"a token for another audience", request(forAudience("vault")), nil, `refused: service account token: its audiences ["vault"] are not among the target audiences ["` + issuerName + `" "api"]`},
		{"of a deleted account", request(), func(w *fixture) { delete(w.objects, "serviceaccounts/shop/till") }, `refused: service account token: serviceaccounts "till" not found`},
		{"of an account that was deleted and created again", request(), func(w *fixture) { w.objects["serviceaccounts/shop/till"].SetUID("sa-2") },
			`refused: service account token: the UID of serviceaccounts "till" is sa-2, not sa-1 as in the token`},
		{"of an account that is held by a finalizer", request(), func(w *fixture) {
			w.objects["serviceaccounts/shop/till"].SetDeletionTimestamp(deleted(2 * time.Minute))
		},
			`refused: service account token: serviceaccounts "till" has been deleted`},
		{"of a deleted pod", request(toPod), func(w *fixture) { delete(w.objects, "pods/shop/web") }, `refused: service account token: pods "web" not found`},
		{"of a pod of another UID", request(toPod), func(w *fixture) { w.objects["pods/shop/web"].SetUID("pod-2") },
			`refused: service account token: the UID of pods "web" is pod-2, not pod-1 as in the token`},
		{"of a deleted secret", request(toSecret), func(w *fixture) { delete(w.objects, "secrets/shop/key") }, `refused: service account token: secrets "key" not found`},
		{"of a deleted node", request(onNode), func(w *fixture) { delete(w.objects, "nodes//n1") }, `refused: service account token: nodes "n1" not found`},
		{"a deleted account also without lookup", request(), func(w *fixture) { w.accept.Lookup = false; delete(w.objects, "serviceaccounts/shop/till") },
			`refused: service account token: serviceaccounts "till" not found`},
		{"of an issuer that is not accepted", request(), func(w *fixture) { w.accept.Issuers = []string{"https://new"} }, "unknown"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := newFixture(t, p256Key())
			token := w.issue(t, test.request)
			if test.then != nil {
				test.then(w)
			}
			if got := w.authenticate(token); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A node agent renews the token of a pod after 80 % of its time.
func TestARotatedTokenGoesOnWhileTheOldOneEndsAtItsOwnTime(t *testing.T) {
	const life, leeway = 10 * time.Minute, time.Minute
	w := newFixture(t, p256Key())
	short := func(r *resource.TokenRequest) { r.Lifetime = life }
	expect := func(when, token, want string) {
		t.Helper()
		if got := w.authenticate(token); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", when, got, want)
		}
	}
	old := w.issue(t, request(toPod, short))
	w.clock.Step(life * 4 / 5)
	rotated := w.issue(t, request(toPod, short))
	if rotated == old {
		t.Fatal("the same token is issued again")
	}
	expect("the old token, after the rotation", old, till)
	expect("the rotated token", rotated, till)
	w.clock.Step(life/5 + leeway + time.Second)
	expect("the old token, after its time", old, "refused: service account token has expired")
	expect("the rotated token, after the old one's time", rotated, till)
	w.clock.Step(life * 4 / 5)
	expect("the rotated token, after its own time", rotated, "refused: service account token has expired")

	next := w.issue(t, request(toPod, short))
	delete(w.objects, "pods/shop/web")
	expect("a token of a pod that was deleted", next, `refused: service account token: pods "web" not found`)
}

func TestEveryAlgorithmSignsAndVerifies(t *testing.T) {
	for algorithm, key := range map[string]crypto.Signer{"RS256": rsaKey(), "ES256": p256Key(), "ES384": p384Key(), "ES512": p521Key()} {
		t.Run(algorithm, func(t *testing.T) {
			w := newFixture(t, key)
			token := w.issue(t, request())
			if got := w.authenticate(token); !strings.HasPrefix(got, till) {
				t.Error(got)
			}
			parsed, err := jwt.ParseSigned(token, signatureAlgorithms())
			if err != nil {
				t.Fatal(err)
			}
			if h := parsed.Headers[0]; h.Algorithm != algorithm || h.KeyID == "" {
				t.Errorf("the header is %+v", h)
			}
		})
	}
}

// segment is a part of a token.
func segment(v any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(v))) }

// forge signs the claims of a good token in another way.
func forge(t *testing.T, good string, algorithm jose.SignatureAlgorithm, key any, id string, change func(map[string]any)) string {
	t.Helper()
	var claims map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(strings.Split(good, ".")[1])), &claims); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(claims)
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil))
	return must(jwt.Signed(signer).Claims(claims).Serialize())
}

func TestForgedTokensAreRefused(t *testing.T) {
	w := newFixture(t, rsaKey())
	good := w.issue(t, request())
	parts := strings.Split(good, ".")
	id := w.accept.Keys.verifying[0].KeyID
	der := must(x509.MarshalPKIXPublicKey(rsaKey().Public()))
	bound := func(claims map[string]any) map[string]any { return claims["kubernetes.io"].(map[string]any) }
	for rule, token := range map[string]string{
		"another key":                               forge(t, good, jose.ES256, otherKey(), "", nil),
		"another key under the ID of ours":          forge(t, good, jose.ES256, otherKey(), id, nil),
		"an unknown key ID":                         forge(t, good, jose.RS256, rsaKey(), "who", nil),
		"algorithm none":                            segment(map[string]string{"alg": "none"}) + "." + parts[1] + ".",
		"algorithm none with our key's ID":          segment(map[string]string{"alg": "none", "kid": id}) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key, DER, as secret": forge(t, good, jose.HS256, der, id, nil),
		"HS256 with the public key, PEM, as secret": forge(t, good, jose.HS256, publicPEM(rsaKey()), "", nil),
		"another algorithm of our key":              forge(t, good, jose.PS256, rsaKey(), id, nil),
		"our signature on other claims":             parts[0] + "." + segment(map[string]any{"iss": issuerName, "sub": "system:serviceaccount:kube-system:root"}) + "." + parts[2],
		"without signature":                         parts[0] + "." + parts[1] + ".",
		"a key in its own header": must(jwt.Signed(must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: otherKey()},
			&jose.SignerOptions{EmbedJWK: true}))).Claims(map[string]any{"iss": issuerName}).Serialize()),
		"no expiry":                         forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { delete(claims, "exp") }),
		"a subject that is not the account": forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { claims["sub"] = "system:admin" }),
		"no account":                        forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { delete(bound(claims), "serviceaccount") }),
		"no UID":                            forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { bound(claims)["serviceaccount"] = map[string]any{"name": "till"} }),
		"no claims about an account":        forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { delete(claims, "kubernetes.io") }),
		"issued in the future":              forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { claims["iat"] = start.Add(time.Hour).Unix() }),
		"the issuer of tokens of secrets":   forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { claims["iss"] = legacyIssuer }),
		"another issuer":                    forge(t, good, jose.RS256, rsaKey(), id, func(claims map[string]any) { claims["iss"] = "https://else" }),
		"JSON serialization":                `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"nothing":                           "",
		"dots":                              "..",
	} {
		t.Run(rule, func(t *testing.T) {
			got := w.authenticate(token)
			if !strings.HasPrefix(got, "refused: ") && got != "unknown" {
				t.Errorf("accepted: %s", got)
			}
			if token != "" && strings.Contains(got, token) {
				t.Errorf("the answer quotes the token: %s", got)
			}
		})
	}
	if got := w.authenticate(good); !strings.HasPrefix(got, till) {
		t.Errorf("the good one: %s", got)
	}
}

func TestATokenReviewMayNameOtherAudiences(t *testing.T) {
	w := newFixture(t, p256Key())
	w.audience = authenticator.WithAudiences(t.Context(), authenticator.Audiences{"vault"})
	if got := w.authenticate(w.issue(t, request(forAudience("vault", "bank")))); got != till+"[jti] for [vault]" {
		t.Error(got)
	}
	if got := w.authenticate(w.issue(t, request())); !strings.HasPrefix(got, "refused") {
		t.Error(got)
	}
}

func TestTokensOfSecrets(t *testing.T) {
	key := rsaKey()
	for _, test := range []struct {
		rule string
		then func(w *fixture, secret *corev1.Secret)
		want string
	}{
		{"while the secret has it", nil, till + "[] for [" + issuerName + " api]"},
		{"of a deleted secret", func(w *fixture, _ *corev1.Secret) { delete(w.objects, "secrets/shop/till-token") }, `refused: service account token: secrets "till-token" not found`},
		{"of a secret that holds another", func(_ *fixture, s *corev1.Secret) { s.Data["token"] = []byte("another") }, `refused: service account token: it is not the one in secret "till-token"`},
		{"of a deleted account", func(w *fixture, _ *corev1.Secret) { delete(w.objects, "serviceaccounts/shop/till") }, `refused: service account token: serviceaccounts "till" not found`},
		{"of an account that is being deleted", func(w *fixture, _ *corev1.Secret) {
			w.objects["serviceaccounts/shop/till"].SetDeletionTimestamp(&metav1.Time{Time: start})
		}, `refused: service account token: serviceaccounts "till" has been deleted`},
		{"of an account of another UID", func(w *fixture, _ *corev1.Secret) { w.objects["serviceaccounts/shop/till"].SetUID("sa-2") },
			`refused: service account token: the UID of serviceaccounts "till" is sa-2, not sa-1 as in the token`},
		{"of a secret that is marked invalid", func(_ *fixture, s *corev1.Secret) { s.Labels = map[string]string{invalidSinceLabel: "2024-05-01"} },
			`refused: service account token: secret "till-token" is marked invalid; use kubectl create token, or remove its label ` + invalidSinceLabel},
		{"without lookup objects are not read", func(w *fixture, _ *corev1.Secret) { w.accept.Lookup = false; clear(w.objects) }, till + "[] for [" + issuerName + " api]"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := newFixture(t, key)
			signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil))
			token := must(jwt.Signed(signer).Claims(map[string]any{
				"iss": legacyIssuer, "sub": "system:serviceaccount:shop:till",
				"kubernetes.io/serviceaccount/namespace": "shop", "kubernetes.io/serviceaccount/secret.name": "till-token",
				"kubernetes.io/serviceaccount/service-account.name": "till", "kubernetes.io/serviceaccount/service-account.uid": "sa-1",
			}).Serialize())
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till-token"}, Data: map[string][]byte{"token": []byte(token)}}
			w.add("secrets", secret)
			if test.then != nil {
				test.then(w, secret)
			}
			if got := w.authenticate(token); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestClaimsAreThoseOfKubernetes(t *testing.T) {
	w := newFixture(t, p256Key())
	issued, err := w.issuer.Issue(t.Context(), request(toPod, onNode, func(r *resource.TokenRequest) { r.Lifetime = mountedLifetime }))
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(strings.Split(issued.Token, ".")[1])), &claims); err != nil {
		t.Fatal(err)
	}
	if id, ok := claims["jti"].(string); !ok || len(id) != 36 {
		t.Errorf("jti is %v", claims["jti"])
	}
	delete(claims, "jti")
	got := string(must(json.Marshal(claims)))
	now := start.Unix()
	want := fmt.Sprintf(`{"aud":["%s","api"],"exp":%d,"iat":%d,"iss":"%s","kubernetes.io":{"namespace":"shop",`+
		`"node":{"name":"n1","uid":"node-1"},"pod":{"name":"web","uid":"pod-1"},"serviceaccount":{"name":"till","uid":"sa-1"},"warnafter":%d},`+
		`"nbf":%d,"sub":"system:serviceaccount:shop:till"}`, issuerName, now+365*24*3600, now, issuerName, now+3607, now)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !issued.Expires.Equal(start.Add(mountedLifetime)) {
		t.Errorf("the expiry in the answer is %s: a client would not renew in time", issued.Expires)
	}
}

func TestTheAuditEventOfATokenRequestNamesTheTokenSinceRelease130(t *testing.T) {
	for _, told := range []bool{false, true} {
		w := newFixture(t, p256Key())
		w.issuer.config.CredentialIDs = told
		ctx := audit.WithAuditContext(t.Context())
		if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, nil); err != nil {
			t.Fatal(err)
		}
		issued, err := w.issuer.Issue(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if told {
			parsed := must(jwt.ParseSigned(issued.Token, signatureAlgorithms()))
			var claims jwt.Claims
			if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
				t.Fatal(err)
			}
			want = "JTI=" + claims.ID
		}
		if got := audit.AuditContextFrom(ctx).GetEventAnnotations()["authentication.kubernetes.io/issued-credential-id"]; got != want {
			t.Errorf("the annotation is %q, want %q", got, want)
		}
	}
}

func TestMaxLifetimeShortensLongerRequests(t *testing.T) {
	w := newFixture(t, p256Key())
	w.issuer.config.MaxLifetime = 2 * time.Hour
	issued, err := w.issuer.Issue(t.Context(), request(func(r *resource.TokenRequest) { r.Lifetime = 1 << 32 * time.Second }))
	if err != nil {
		t.Fatal(err)
	}
	if issued.Lifetime != 2*time.Hour || !issued.Expires.Equal(start.Add(2*time.Hour)) {
		t.Errorf("got %+v", issued.Lifetime)
	}
}

func FuzzAuthenticateToken(f *testing.F) {
	w := newFixture(f, p256Key())
	good := w.issue(f, request(toPod))
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add(segment(map[string]string{"alg": "none"}) + "." + parts[1] + ".")
	f.Add(parts[0] + "." + segment(map[string]any{"iss": legacyIssuer, "exp": -1e300}) + "." + parts[2])
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		response, ok, err := NewAuthenticator(w.accept).AuthenticateToken(context.Background(), token)
		// Other signatures of the same claims exist, but cannot be found without
		// the key: only the issued tokens can be accepted.
		if ok && (token != good || err != nil || response.User.GetUID() != string(types.UID("sa-1"))) {
			t.Errorf("accepted %q: %v, %v", token, response, err)
		}
	})
}
