package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/test/launch"
)

// between starts a server between an agent and its API server, which changes the responses
// to some requests, that it asks for in JSON. It returns its URL.
func between(cluster launch.Cluster, user string, concerns func(*http.Request) bool, change func(*http.Response) error) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	Expect(cluster.Authority.Client(dir, "client", user, "system:nodes")).To(Succeed())
	Expect(cluster.Authority.Server(dir, "server", "server", "127.0.0.1")).To(Succeed())
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: cluster.Authority.File, CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
	}})
	Expect(err).NotTo(HaveOccurred())
	to, err := url.Parse(cluster.Server)
	Expect(err).NotTo(HaveOccurred())
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if concerns(r.In) {
				r.Out.Header.Set("Accept", "application/json")
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if !concerns(resp.Request) {
				return nil
			}
			return change(resp)
		},
	})
	proxy.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	proxy.StartTLS()
	DeferCleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	return proxy.URL
}

// shortTokens starts a server between an agent and its API server, which gives the tokens
// that the agent requests a shorter life than the ten minutes that the API demands. It
// returns its URL.
func shortTokens(server *launch.Server, cluster launch.Cluster, user string, life time.Duration) string {
	GinkgoHelper()
	key, err := keyutil.PrivateKeyFromFile(filepath.Join(server.DataDir, "pki", "sa.key"))
	Expect(err).NotTo(HaveOccurred())
	isToken := func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/token")
	}
	return between(cluster, user, isToken, func(resp *http.Response) error {
		if resp.StatusCode != http.StatusCreated {
			return nil
		}
		var issued authenticationv1.TokenRequest
		if err := json.NewDecoder(resp.Body).Decode(&issued); err != nil {
			return err
		}
		if err := shorten(&issued, life, key); err != nil {
			return err
		}
		body, err := json.Marshal(issued)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Del("Content-Length")
		return err
	})
}

// shorten signs a token again, so that it ends after a life. The API server accepts a
// token for another minute, because clocks may differ.
func shorten(issued *authenticationv1.TokenRequest, life time.Duration, key any) error {
	parsed, err := jwt.ParseSigned(issued.Status.Token, []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	if err != nil {
		return err
	}
	claims := map[string]any{}
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return err
	}
	end := time.Now().Add(life)
	claims["exp"] = end.Add(-jwt.DefaultLeeway).Unix()
	header := parsed.Headers[0]
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(header.Algorithm), Key: jose.JSONWebKey{Key: key, KeyID: header.KeyID}}, nil)
	if err != nil {
		return err
	}
	seconds := int64(life.Seconds())
	issued.Spec.ExpirationSeconds, issued.Status.ExpirationTimestamp = &seconds, metav1.NewTime(end)
	issued.Status.Token, err = jwt.Signed(signer).Claims(claims).Serialize()
	return err
}

// userOf returns the user of a token, or an error if the API server rejects it.
func userOf(ctx context.Context, server *launch.Server, token string) (string, error) {
	config := rest.AnonymousClientConfig(server.Config)
	config.BearerToken = token
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	self, err := as.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return self.Status.UserInfo.Username, nil
}
