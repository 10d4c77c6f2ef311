package serviceaccount

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// The paths of the documents by which other servers verify tokens of this one
// (OpenID Connect Discovery 1.0).
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// documentMaxAge is for how many seconds clients may cache the documents.
const documentMaxAge = 3600

// configuration is the discovery document, with the fields that clients need to
// verify tokens. The API server has no login, so it has no fields for one.
type configuration struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	SigningAlgs   []string `json:"id_token_signing_alg_values_supported"`
}

// KeysAt returns the URL of the keys for a request of the configuration, on the server with
// this address. A server that listens on the loopback interface has other addresses for
// pods, so there it is on the host that the request was made to.
func KeysAt(address string) func(*http.Request) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	loopback := net.ParseIP(host).IsLoopback()
	return func(req *http.Request) string {
		keys := url.URL{Scheme: "https", Host: address, Path: KeysPath}
		if loopback {
			keys.Host = req.Host
		}
		return keys.String()
	}
}

// Discovery returns the handlers of the documents, by path. keysURI returns the public
// URL of the keys for a request of the configuration. It returns an error if the issuer is
// not an https URL without query and fragment: such an issuer has no documents (section 3 of
// the standard).
func Discovery(issuer string, keysURI func(*http.Request) string, keys *Keys) (map[string]http.Handler, error) {
	if u, err := url.Parse(issuer); err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--service-account-issuer: %q is not an https URL without query and fragment", issuer)
	}
	config := configuration{Issuer: issuer, ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}}
	var set jose.JSONWebKeySet
	for _, key := range keys.verifying {
		set.Keys = append(set.Keys, key.Public())
		config.SigningAlgs = append(config.SigningAlgs, key.Algorithm)
	}
	slices.Sort(config.SigningAlgs)
	config.SigningAlgs = slices.Compact(config.SigningAlgs)
	setJSON, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	return map[string]http.Handler{
		ConfigurationPath: document("application/json", func(req *http.Request) ([]byte, error) {
			answer := config
			answer.JWKSURI = keysURI(req)
			return json.Marshal(answer)
		}),
		KeysPath: document("application/jwk-set+json", func(*http.Request) ([]byte, error) { return setJSON, nil }),
	}, nil
}

// document serves content that does not change.
func document(contentType string, content func(*http.Request) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the document can only be read", http.StatusMethodNotAllowed)
			return
		}
		body, err := content(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", documentMaxAge))
		_, _ = w.Write(body) // fails if the client has closed the connection
	})
}
