package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
)

// Getter reads an object that a token speaks of, as it is now. The namespace is
// empty for objects that have none.
type Getter func(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error)

// AuthenticatorConfig says which tokens an Authenticator accepts.
type AuthenticatorConfig struct {
	Keys *Keys
	// Issuers are the accepted values of the claim "iss", beside that of the
	// tokens that secrets hold.
	Issuers []string
	// Audiences are those of the API server: a token must be for one of them,
	// unless the caller (a TokenReview) names others.
	Audiences authenticator.Audiences
	// Lookup makes tokens that secrets hold end with the secret and the
	// account. The others always do.
	Lookup bool
	Get    Getter
	Clock  clock.PassiveClock
}

// Authenticator recognises service accounts by their tokens.
type Authenticator struct {
	config AuthenticatorConfig
}

var _ authenticator.Token = &Authenticator{}

// NewAuthenticator makes an authenticator.
func NewAuthenticator(config AuthenticatorConfig) *Authenticator {
	return &Authenticator{config: config}
}

// AuthenticateToken implements authenticator.Token. It leaves what is no token
// of an accepted issuer to others; everything else that is wrong with a token
// is an error, which does not quote it.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parsed, err := jwt.ParseSigned(token, signatureAlgorithms())
	if err != nil {
		return nil, false, nil
	}
	var said claims
	if err := parsed.UnsafeClaimsWithoutVerification(&said); err != nil || !a.accepts(said.Issuer) {
		return nil, false, nil
	}
	said, err = a.verify(parsed)
	if err != nil {
		return nil, false, err
	}
	audiences, err := a.audiences(ctx, said)
	if err != nil {
		return nil, false, err
	}
	if err := a.checkTime(said); err != nil {
		return nil, false, err
	}
	var account *serviceaccount.ServiceAccountInfo
	if said.Bound != nil && slices.Contains(a.config.Issuers, said.Issuer) {
		account, err = a.bound(ctx, said)
	} else {
		account, err = a.legacy(ctx, said, token)
	}
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: account.UserInfo(), Audiences: audiences}, true, nil
}

func (a *Authenticator) accepts(issuer string) bool {
	return issuer == legacyIssuer || slices.Contains(a.config.Issuers, issuer)
}

// verify returns the claims if one of the keys has signed them.
func (a *Authenticator) verify(token *jwt.JSONWebToken) (claims, error) {
	header := token.Headers[0]
	keys := a.config.Keys.candidates(header.KeyID, header.Algorithm)
	if len(keys) == 0 {
		return claims{}, errors.New("service account token: invalid signature, no keys found")
	}
	var errs []error
	for _, key := range keys {
		var said claims
		err := token.Claims(key.Key, &said)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !a.accepts(said.Issuer):
			return claims{}, fmt.Errorf("service account token: issuer %q is not accepted", said.Issuer)
		default:
			return said, nil
		}
	}
	return claims{}, fmt.Errorf("service account token: %w", errors.Join(errs...))
}

// audiences are those of the token that the caller asks for.
func (a *Authenticator) audiences(ctx context.Context, said claims) (authenticator.Audiences, error) {
	own := authenticator.Audiences(said.Audience)
	if len(own) == 0 {
		own = a.config.Audiences
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token", said.Subject)
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = a.config.Audiences
	}
	both := own.Intersect(wanted)
	if len(both) == 0 && len(a.config.Audiences) > 0 {
		return nil, fmt.Errorf("service account token: its audiences %q are not among the target audiences %q", own, wanted)
	}
	return both, nil
}

// checkTime allows the clocks of servers a minute of difference
// (jwt.DefaultLeeway).
func (a *Authenticator) checkTime(said claims) error {
	if said.Bound != nil && said.Expiry == nil {
		return errors.New("service account token has no expiry")
	}
	switch err := said.Validate(jwt.Expected{Time: a.config.Clock.Now()}); {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("service account token is issued in the future")
	default:
		return fmt.Errorf("service account token: %w", err)
	}
}
