// Package jwt authenticates the JSON Web Tokens of foreign issuers (OpenID Connect),
// by an AuthenticationConfiguration, which may change while the server runs.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication#using-authentication-configuration
package jwt

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/configlines"
)

// Flags are the flags --oidc-*, which describe one issuer.
type Flags struct {
	IssuerURL, ClientID           string
	CAFile                        string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	SigningAlgorithms             []string
	RequiredClaims                map[string]string
}

// Config returns the configuration that the flags stand for.
func (f Flags) Config() (*apiserver.AuthenticationConfiguration, error) {
	authority := ""
	if f.CAFile != "" {
		content, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		authority = string(content)
	}
	prefix := f.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = "" // the user wants none
	case prefix == "" && f.UsernameClaim != "email":
		prefix = f.IssuerURL + "#"
	}
	issuer := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}, CertificateAuthority: authority},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: f.UsernameClaim, Prefix: &prefix},
		},
	}
	if f.GroupsClaim != "" {
		issuer.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: ptr.To(f.GroupsPrefix)}
	}
	for _, claim := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		issuer.ClaimValidationRules = append(issuer.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: f.RequiredClaims[claim]})
	}
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{issuer}}, nil
}

// SigningAlgorithms returns the algorithms that a token may be signed with. All are
// asymmetric; "none" is not one of them.
func SigningAlgorithms() []string { return oidc.AllValidSigningAlgorithms() }

// Parse reads an AuthenticationConfiguration of any version, in YAML or JSON.
// Unknown fields are errors.
func Parse(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	decoded, err := runtime.Decode(codecs.UniversalDecoder(), content)
	if err != nil {
		return nil, configlines.Explain(content, err)
	}
	config, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("invalid kind %T: must be AuthenticationConfiguration", decoded)
	}
	return config, nil
}

// validate returns all errors of a configuration. The issuers of the server's own
// tokens cannot be in it.
func validate(config *apiserver.AuthenticationConfiguration, compiler authenticationcel.Compiler, ownIssuers []string) error {
	return validation.ValidateAuthenticationConfiguration(compiler, config, ownIssuers).ToAggregate()
}
