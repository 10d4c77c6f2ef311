package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/utils/clock"
)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = sign(t, template, nil)
	return a
}

// client makes a certificate of the authority.
func (a *authority) client(t *testing.T, user string, groups ...string) *x509.Certificate {
	t.Helper()
	cert, _ := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a)
	return cert
}

func (a *authority) provider(t *testing.T) dynamiccertificates.CAContentProvider {
	t.Helper()
	p, err := dynamiccertificates.NewStaticCAContent("test", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sign makes a certificate; without an authority it signs itself.
func sign(t *testing.T, template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if by == nil {
		by = &authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// identity returns the user of a request in one line, or "401".
func identity(t *testing.T, config Config, req *http.Request) string {
	t.Helper()
	made, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, ok, err := made.Request.AuthenticateRequest(req)
	if err != nil || !ok {
		return "401"
	}
	groups := slices.Sorted(slices.Values(resp.User.GetGroups()))
	line := fmt.Sprintf("%s uid=%q %v", resp.User.GetName(), resp.User.GetUID(), groups)
	if extra := resp.User.GetExtra(); len(extra) > 0 {
		line += fmt.Sprintf(" %v", extra)
	}
	return line
}

func TestTheUserOfARequest(t *testing.T) {
	users, proxies, strangers := newAuthority(t, "users"), newAuthority(t, "proxies"), newAuthority(t, "strangers")
	all := Config{
		ClientCA:  users.provider(t),
		TokenFile: tokenFile(t, "secret,ann,42,\"dev,ops\"\nbare,bob,43\n"),
		Anonymous: true,
		Clock:     clock.RealClock{},
		RequestHeader: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   proxies.provider(t),
			AllowedClientNames:  headerrequest.StaticStringSlice{"front"},
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		},
	}
	closed := all
	closed.Anonymous = false
	named := func(header http.Header) http.Header {
		header.Set("X-Remote-User", "eve")
		header.Set("X-Remote-Uid", "7")
		header.Set("X-Remote-Group", "system:masters")
		header["X-Remote-Extra-Scopes"] = []string{"read", "write"}
		return header
	}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	const (
		unidentified = `system:anonymous uid="" [system:unauthenticated]`
		eve          = `eve uid="7" [system:authenticated system:masters] map[scopes:[read write]]`
		ann          = `ann uid="42" [dev ops system:authenticated]`
	)
	for _, test := range []struct {
		rule   string
		config Config
		cert   *x509.Certificate
		header http.Header
		want   string
	}{
		{"a certificate's common name is the user, its organizations are the groups", all, users.client(t, "carl", "a", "b"), nil, `carl uid="" [a b system:authenticated]`},
		{"a certificate of an unknown authority is refused", all, strangers.client(t, "carl", "system:masters"), nil, "401"},
		{"a certificate of an unknown authority does not invalidate a good token", all, strangers.client(t, "carl"), bearer("secret"), ann},
		{"a token of the file has a user, a uid and groups", all, nil, bearer("secret"), ann},
		{"a token of the file needs no groups", all, nil, bearer("bare"), `bob uid="43" [system:authenticated]`},
		{"an unknown token is refused although anonymous requests pass", all, nil, bearer("guess"), "401"},
		{"a token is refused if no tokens are configured, although anonymous requests pass", Config{Anonymous: true}, nil, bearer("guess"), "401"},
		{"a bad token does not invalidate a good certificate", all, users.client(t, "carl"), bearer("guess"), `carl uid="" [system:authenticated]`},
		{"a request without identity is anonymous", all, nil, nil, unidentified},
		{"a request without identity is anonymous where nothing is configured", Config{Anonymous: true}, nil, nil, unidentified},
		{"a request without identity is refused when anonymous is off", closed, nil, nil, "401"},
		{"headers are accepted from an allowed name of the proxies' authority", all, proxies.client(t, "front"), named(http.Header{}), eve},
		{"headers are ignored from another name of the proxies' authority", all, proxies.client(t, "back"), named(http.Header{}), "401"},
		{"headers are ignored from a user's certificate", all, users.client(t, "front"), named(http.Header{}), `front uid="" [system:authenticated]`},
		{"headers are ignored without a certificate", all, nil, named(http.Header{}), unidentified},
		{"headers are ignored with a token", all, nil, named(bearer("secret")), ann},
	} {
		t.Run(test.rule, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://svc/api", nil)
			if test.header != nil {
				req.Header = test.header.Clone()
			}
			req.TLS = &tls.ConnectionState{}
			if test.cert != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{test.cert}
			}
			if got := identity(t, test.config, req); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestACertificateIsNamedInTheUsersExtraFieldsSinceRelease132(t *testing.T) {
	users := newAuthority(t, "users")
	for _, told := range []bool{false, true} {
		made, err := New(Config{ClientCA: users.provider(t), Clock: clock.RealClock{}, CredentialIDs: told})
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://svc/api", nil)
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{users.client(t, "carl")}}
		response, ok, err := made.Request.AuthenticateRequest(req)
		if err != nil || !ok {
			t.Fatalf("%v %v", ok, err)
		}
		if _, found := response.User.GetExtra()["authentication.kubernetes.io/credential-id"]; found != told {
			t.Errorf("extra fields %v, want a credential: %v", response.User.GetExtra(), told)
		}
	}
}

func TestATokenOfTheFileIsForTheServer(t *testing.T) {
	made, err := New(Config{TokenFile: tokenFile(t, "secret,ann,42\n"), Audiences: authenticator.Audiences{"api", "alias"}})
	if err != nil {
		t.Fatal(err)
	}
	for audience, want := range map[string]bool{"api": true, "vault": false} {
		req := httptest.NewRequestWithContext(authenticator.WithAudiences(t.Context(), authenticator.Audiences{audience}), http.MethodGet, "https://svc/api", nil)
		req.Header.Set("Authorization", "Bearer secret")
		resp, ok, err := made.Identified.AuthenticateRequest(req)
		if ok != want || ok && !slices.Equal(resp.Audiences, authenticator.Audiences{audience}) {
			t.Errorf("for %s: %+v, %v, %v", audience, resp, ok, err)
		}
	}
}

func TestIdentifiedRefusesAnonymousRequests(t *testing.T) {
	made, err := New(Config{Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://svc/api", nil)
	if resp, ok, err := made.Identified.AuthenticateRequest(req); ok || err != nil {
		t.Errorf("got %v, %v, %v", resp, ok, err)
	}
}

func TestAnErrorOfTheTokenFileNamesItsFlag(t *testing.T) {
	for rule, file := range map[string]string{
		"missing":             filepath.Join(t.TempDir(), "none"),
		"with too few fields": tokenFile(t, "secret,ann\n"),
		"that is not CSV":     tokenFile(t, "secret,\"ann\n"),
	} {
		t.Run(rule, func(t *testing.T) {
			if _, err := New(Config{TokenFile: file}); err == nil || !strings.Contains(err.Error(), "--token-auth-file "+file) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARefusedTokenIsTriedAgainAtOnce(t *testing.T) {
	valid, calls := false, 0
	method := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		calls++
		return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, valid, nil
	})
	made, err := New(Config{Tokens: []authenticator.Token{method}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	authenticated := func() bool {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Authorization", "Bearer t")
		_, ok, err := made.Request.AuthenticateRequest(req)
		return ok && err == nil
	}
	if authenticated() {
		t.Error("the token is valid")
	}
	if valid = true; !authenticated() {
		t.Error("the token is refused still")
	}
	if !authenticated() || calls != 2 {
		t.Errorf("%d calls, want 2: a token that was accepted is in the cache", calls)
	}
}
