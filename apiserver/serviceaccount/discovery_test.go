package serviceaccount

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

func TestTokensAreVerifiedByTheDiscoveryDocuments(t *testing.T) {
	keys, err := LoadKeys([]string{file(t, privatePEM(p256Key()), publicPEM(rsaKey()))}, file(t, privatePEM(p256Key())))
	if err != nil {
		t.Fatal(err)
	}
	documents, err := Discovery(issuerName, KeysAt("server:6443"), keys)
	if err != nil {
		t.Fatal(err)
	}
	read := func(path, method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		documents[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	config := read(ConfigurationPath, http.MethodGet)
	if got, want := config.Body.String(), `{"issuer":"`+issuerName+`","jwks_uri":"https://server:6443/openid/v1/jwks","response_types_supported":["id_token"],`+
		`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	answer := read(KeysPath, http.MethodGet)
	if got := answer.Header().Get("Content-Type") + "; " + answer.Header().Get("Cache-Control"); got != "application/jwk-set+json; public, max-age=3600" {
		t.Errorf("the headers are %s", got)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(answer.Body.Bytes(), &set); err != nil {
		t.Fatal(err)
	}
	for _, key := range set.Keys {
		if !key.IsPublic() || !key.Valid() || key.Use != "sig" {
			t.Errorf("not a public key for signatures: %+v", key)
		}
	}
	w := newFixture(t, p256Key())
	token, err := jwt.ParseSigned(w.issue(t, request()), signatureAlgorithms())
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := token.Claims(&set, &claims); err != nil || claims["iss"] != issuerName {
		t.Errorf("a token cannot be verified by the documents: %v", err)
	}
	if got := read(KeysPath, http.MethodPost).Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST answers %d", got)
	}
}

func TestOnlyAnHTTPSIssuerHasDocuments(t *testing.T) {
	for _, issuer := range []string{"me", "http://host", "https://host?a=b", "https://host#a", "https://", "https://[::1"} {
		if documents, err := Discovery(issuer, KeysAt("server"), &Keys{}); err == nil {
			t.Errorf("%q has %v", issuer, documents)
		}
	}
}

func TestOnTheLoopbackInterfaceTheKeysAreOnTheHostOfTheRequest(t *testing.T) {
	for _, test := range []struct{ address, host, want string }{
		{"127.0.0.1:6443", "10.0.0.1", "https://10.0.0.1/openid/v1/jwks"},
		{"127.0.0.1:6443", "127.0.0.1:6443", "https://127.0.0.1:6443/openid/v1/jwks"},
		{"[::1]:6443", "kubernetes.default.svc:443", "https://kubernetes.default.svc:443/openid/v1/jwks"},
		{"192.0.2.1:6443", "10.0.0.1", "https://192.0.2.1:6443/openid/v1/jwks"},
		{"server", "10.0.0.1", "https://server/openid/v1/jwks"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, ConfigurationPath, nil)
		req.Host = test.host
		if got := KeysAt(test.address)(req); got != test.want {
			t.Errorf("of the server %s, asked as %s: got %s, want %s", test.address, test.host, got, test.want)
		}
	}
}
