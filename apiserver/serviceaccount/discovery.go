package serviceaccount

import (
	"encoding/json"
	"fmt"
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

// Discovery returns the handlers of the documents, by path. keysURI is the public
// URL of the keys. It returns an error if the issuer is not an https URL without
// query and fragment: such an issuer has no documents (section 3 of the standard).
func Discovery(issuer, keysURI string, keys *Keys) (map[string]http.Handler, error) {
	if u, err := url.Parse(issuer); err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--service-account-issuer: %q is not an https URL without query and fragment", issuer)
	}
	config := configuration{
		Issuer: issuer, JWKSURI: keysURI,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
	}
	var set jose.JSONWebKeySet
	for _, key := range keys.verifying {
		set.Keys = append(set.Keys, key.Public())
		config.SigningAlgs = append(config.SigningAlgs, key.Algorithm)
	}
	slices.Sort(config.SigningAlgs)
	config.SigningAlgs = slices.Compact(config.SigningAlgs)
	configJSON, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	setJSON, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	return map[string]http.Handler{
		ConfigurationPath: document("application/json", configJSON),
		KeysPath:          document("application/jwk-set+json", setJSON),
	}, nil
}

// document serves content that never changes.
func document(contentType string, content []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the document can only be read", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", documentMaxAge))
		_, _ = w.Write(content) // fails if the client has closed the connection
	})
}
