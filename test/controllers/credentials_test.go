package controllers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/apiserver/authentication/jwt/jwttest"
)

const (
	// webhookToken authenticates a server to the webhooks of outside, which accept the token
	// reviewedToken.
	webhookToken, reviewedToken = "webhook-f83hd7a", "reviewed-8dhf73k"
	// encryptionKey encrypts secrets.
	encryptionKey = "a key of 32 bytes for encryption"
)

// outside are an issuer of tokens, and webhooks that review tokens and secrets.
type outside struct {
	// issuer is the one of --oidc-issuer-url, stranger another one.
	issuer, stranger *jwttest.Issuer
	webhooks         *httptest.Server
	// admitted counts the requests whose secret a webhook has got.
	admitted atomic.Int32
}

func startOutside() *outside {
	GinkgoHelper()
	o := &outside{issuer: jwttest.New(GinkgoTB()), stranger: jwttest.New(GinkgoTB())}
	o.webhooks = httptest.NewTLSServer(o)
	DeferCleanup(o.webhooks.Close)
	return o
}

func (o *outside) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var answer any
	switch req.URL.Path {
	case "/token":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || req.Header.Get("Authorization") != "Bearer "+webhookToken {
			http.Error(w, "no review, or of an unknown server", http.StatusUnauthorized)
			return
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == reviewedToken, User: authenticationv1.UserInfo{Username: "bob"}}
		answer = review
	default:
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		o.admitted.Add(1)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		answer = review
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the server may have given up
}

// flags are those of a server that uses all of it, and encrypts secrets; dir is for their files.
func (o *outside) flags(dir string) []string {
	GinkgoHelper()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}
	return []string{
		"--oidc-issuer-url=" + o.issuer.URL, "--oidc-client-id=cluster", "--oidc-signing-algs=ES256", "--oidc-ca-file=" + file("issuer.crt", o.issuer.Authority),
		"--authentication-token-webhook-version=v1", "--authentication-token-webhook-config-file=" + file("webhook", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: %s}}]
clusters: [{name: c, cluster: {server: "%s/token", certificate-authority-data: %s}}]
`, webhookToken, o.webhooks.URL, base64.StdEncoding.EncodeToString(o.authority()))),
		"--encryption-provider-config=" + file("encryption", fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: k, secret: %s}]}}, {identity: {}}]}]
`, base64.StdEncoding.EncodeToString([]byte(encryptionKey)))),
	}
}

// authority is the certificate of the webhooks.
func (o *outside) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.webhooks.Certificate().Raw})
}

// reviewSecrets registers the webhook of secrets.
func (o *outside) reviewSecrets(ctx context.Context, client kubernetes.Interface) {
	GinkgoHelper()
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "secrets.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(o.webhooks.URL + "/secrets"), CABundle: o.authority()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// token returns one that the issuer has signed, with these claims instead of the usual ones.
func (o *outside) token(of *jwttest.Issuer, replaced map[string]any) string {
	claims := map[string]any{"iss": o.issuer.URL, "sub": "ann", "aud": "cluster", "exp": time.Now().Add(time.Hour).Unix()}
	for claim, value := range replaced {
		claims[claim] = value
	}
	return of.Token(claims)
}

// refused are tokens that authenticate no user, by what the log says of them.
func (o *outside) refused() map[string]string {
	return map[string]string{
		"oidc: token is expired":                         o.token(o.issuer, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		`oidc: expected audience \"cluster\" got`:        o.token(o.issuer, map[string]any{"aud": "vault"}),
		"oidc: verify token: failed to verify signature": o.token(o.stranger, nil),
	}
}
