package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
)

// Getter reads an object that a token refers to. The namespace is empty for
// cluster-scoped objects. Errors are apierrors.
type Getter func(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error)

// AuthenticatorConfig selects the tokens that an Authenticator accepts.
type AuthenticatorConfig struct {
	Keys *Keys
	// Issuers are the accepted values of the claim "iss", beside that of the
	// tokens that secrets hold.
	Issuers []string
	// Audiences are those of the API server: a token must be for one of them,
	// unless the caller (a TokenReview) names others.
	Audiences authenticator.Audiences
	// Lookup makes tokens of secrets invalid when the secret or the account is
	// deleted. Tokens of TokenRequests always become invalid with their objects.
	Lookup bool
	// Cached reads an object from the watch cache, by which a token can be accepted, and
	// Get its newest state, by which it is rejected.
	Cached, Get Getter
	Clock       clock.PassiveClock
	// Count, unless nil, counts the uses of tokens.
	Count func(Use)
	// Label, unless nil, sets a label of a secret. No token waits for it.
	Label func(ctx context.Context, secret *corev1.Secret, key, value string) error
	// CredentialIDs tells in the user's extra fields which token was used, and on which
	// node the pod of the token is (KEP-4193: since release 1.30).
	CredentialIDs bool
}

// Authenticator authenticates service accounts by their tokens.
type Authenticator struct {
	config AuthenticatorConfig
	// labelling has the UIDs of the secrets that are being labelled.
	labelling sync.Map
}

var _ authenticator.Token = &Authenticator{}

// NewAuthenticator makes an authenticator.
func NewAuthenticator(config AuthenticatorConfig) *Authenticator {
	return &Authenticator{config: config}
}

// AuthenticateToken implements authenticator.Token. It has no opinion on a token
// that is not a JSON Web Token of an accepted issuer. Every other invalid token is
// an error, which does not contain the token.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parsed, err := jwt.ParseSigned(token, signatureAlgorithms())
	if err != nil {
		return nil, false, nil
	}
	var claims tokenClaims
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil || !a.accepts(claims.Issuer) {
		return nil, false, nil
	}
	claims, err = a.verify(parsed)
	if err != nil {
		return nil, false, err
	}
	audiences, err := a.audiences(ctx, claims)
	if err != nil {
		return nil, false, err
	}
	if err := a.checkTime(claims); err != nil {
		return nil, false, err
	}
	var account *serviceaccount.ServiceAccountInfo
	if claims.Bound != nil && slices.Contains(a.config.Issuers, claims.Issuer) {
		account, err = a.bound(ctx, claims)
	} else {
		account, err = a.legacy(ctx, claims, token)
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
func (a *Authenticator) verify(token *jwt.JSONWebToken) (tokenClaims, error) {
	header := token.Headers[0]
	keys := a.config.Keys.candidates(header.KeyID, header.Algorithm)
	if len(keys) == 0 {
		return tokenClaims{}, errors.New("service account token: invalid signature, no keys found")
	}
	var errs []error
	for _, key := range keys {
		var claims tokenClaims
		err := token.Claims(key.Key, &claims)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !a.accepts(claims.Issuer):
			return tokenClaims{}, fmt.Errorf("service account token: issuer %q is not accepted", claims.Issuer)
		default:
			return claims, nil
		}
	}
	return tokenClaims{}, fmt.Errorf("service account token: %w", errors.Join(errs...))
}

// audiences returns those audiences of the token that the caller accepts.
func (a *Authenticator) audiences(ctx context.Context, claims tokenClaims) (authenticator.Audiences, error) {
	own := authenticator.Audiences(claims.Audience)
	if len(own) == 0 {
		a.count(Legacy)
		own = a.config.Audiences
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token", claims.Subject)
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

// checkTime returns an error unless the token is valid now. The clocks of servers
// may differ by a minute (jwt.DefaultLeeway).
func (a *Authenticator) checkTime(claims tokenClaims) error {
	if claims.Bound != nil && claims.Expiry == nil {
		return errors.New("service account token has no expiry")
	}
	switch err := claims.Validate(jwt.Expected{Time: a.config.Clock.Now()}); {
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
