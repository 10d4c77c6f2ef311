package jwt

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/configlines"
)

// Config is what an Authenticator is made with.
type Config struct {
	// Initial is the first configuration.
	Initial *apiserver.AuthenticationConfiguration
	// File is the file of --authentication-config, which Run reads again when it
	// changes; empty without one. Content is the content that Initial was read from.
	File    string
	Content []byte
	// SigningAlgorithms are those of all issuers.
	SigningAlgorithms []string
	// OwnIssuers are the issuers of the server's own tokens, which no configuration
	// may name.
	OwnIssuers []string
	// Audiences are those of the API server: a token that is valid for its issuer's
	// audiences is valid for them.
	Audiences authenticator.Audiences
	Clock     clock.WithTicker
}

// Authenticator authenticates the tokens of the issuers in its configuration.
type Authenticator struct {
	config   Config
	compiler authenticationcel.Compiler
	// lifetime ends with Close; end ends it.
	lifetime context.Context //nolint:containedctx // the library's goroutines live as long as the authenticator
	end      context.CancelFunc
	current  atomic.Pointer[issuers]
}

var _ authenticator.Token = &Authenticator{}

// issuers are the authenticators of one configuration.
type issuers struct {
	authenticator.Token
	all []oidc.AuthenticatorTokenWithHealthCheck
	end context.CancelFunc
}

// New makes an authenticator, and begins to read the keys of the issuers. It does
// not wait for them: until its issuer has answered, a token is rejected.
func New(config Config) (*Authenticator, error) {
	a := &Authenticator{config: config, compiler: authenticationcel.NewDefaultCompiler()}
	if err := validate(config.Initial, a.compiler, config.OwnIssuers); err != nil {
		return nil, configlines.Explain(config.Content, err)
	}
	a.lifetime, a.end = context.WithCancel(context.Background())
	first, err := a.issuersOf(config.Initial)
	if err != nil {
		a.end()
		return nil, err
	}
	a.current.Store(first)
	return a, nil
}

// Close ends the background work. The authenticator must not be used afterwards.
func (a *Authenticator) Close() { a.end() }

// AuthenticateToken implements authenticator.Token. It has no opinion on tokens of
// other issuers. Every other invalid token is an error.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return a.current.Load().AuthenticateToken(ctx, token)
}

// issuersOf makes the authenticators of a configuration.
func (a *Authenticator) issuersOf(config *apiserver.AuthenticationConfiguration) (*issuers, error) {
	made := &issuers{}
	var ctx context.Context
	ctx, made.end = context.WithCancel(a.lifetime)
	var tokens []authenticator.Token
	for i, issuer := range config.JWT {
		options := oidc.Options{
			JWTAuthenticator: issuer, Compiler: a.compiler,
			SupportedSigningAlgs: a.config.SigningAlgorithms, DisallowedIssuers: a.config.OwnIssuers,
		}
		if pem := issuer.Issuer.CertificateAuthority; pem != "" {
			authority, err := dynamiccertificates.NewStaticCAContent("oidc-authenticator", []byte(pem))
			if err != nil {
				made.end()
				return nil, fmt.Errorf("jwt[%d].issuer.certificateAuthority: %w", i, err)
			}
			options.CAContentProvider = authority
		}
		one, err := oidc.New(ctx, options)
		if err != nil {
			made.end()
			return nil, fmt.Errorf("jwt[%d]: %w", i, err)
		}
		made.all, tokens = append(made.all, one), append(tokens, one)
	}
	made.Token = authenticator.WrapAudienceAgnosticToken(a.config.Audiences, tokenunion.NewFailOnError(tokens...))
	return made, nil
}

// healthy returns an error until all issuers have answered.
func (i *issuers) healthy() error {
	for _, one := range i.all {
		if err := one.HealthCheck(); err != nil {
			return err
		}
	}
	return nil
}
