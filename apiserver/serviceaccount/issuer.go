package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
)

const (
	// mountedLifetime is the lifetime that a pod's mounted token asks for (admission
	// plugin ServiceAccount). The unusual number identifies such requests.
	mountedLifetime = time.Hour + 7*time.Second
	// extendedLifetime is the lifetime that such a token gets, for clients that do
	// not read the file again; the token ends with its pod in any case.
	extendedLifetime = 365 * 24 * time.Hour
)

// IssuerConfig is what an Issuer writes into tokens.
type IssuerConfig struct {
	Keys *Keys
	// Issuer is the claim "iss".
	Issuer string
	// Audiences are those of the API server.
	Audiences []string
	// MaxLifetime is the longest lifetime of a token; zero is unlimited.
	MaxLifetime time.Duration
	// ExtendMounted extends the lifetime of tokens that are mounted into pods.
	ExtendMounted bool
	// CredentialIDs names each issued token in the audit event of its request, as
	// Kubernetes does from release 1.30 on.
	CredentialIDs bool
	Clock         clock.PassiveClock
}

// Issuer signs tokens. It implements resource.Tokens.
type Issuer struct {
	config IssuerConfig
	signer jose.Signer
}

// NewIssuer makes an issuer. The keys must have a signing key.
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	if !config.Keys.Signing() {
		return nil, errors.New("no key to sign tokens with")
	}
	signer, err := newSigner(*config.Keys.signing)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	return &Issuer{config: config, signer: signer}, nil
}

func newSigner(key jose.JSONWebKey) (jose.Signer, error) {
	return jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
}

// Issue implements resource.Tokens.
func (i *Issuer) Issue(ctx context.Context, request resource.TokenRequest) (*resource.Token, error) {
	if limit := i.config.MaxLifetime; limit > 0 && request.Lifetime > limit {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds",
			int64(request.Lifetime/time.Second), int64(limit/time.Second)))
		request.Lifetime = limit
	}
	now := i.config.Clock.Now()
	claims := i.claims(request, now)
	signed, err := jwt.Signed(i.signer).Claims(claims).Serialize()
	if err != nil {
		return nil, fmt.Errorf("sign a token: %w", err)
	}
	if i.config.CredentialIDs {
		audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, tokenjwt.CredentialIDForJTI(claims.ID))
	}
	return &resource.Token{
		Token: signed, Lifetime: request.Lifetime,
		Issued: now, Expires: now.Add(request.Lifetime),
	}, nil
}

// claims returns the claims of a token that is issued now.
func (i *Issuer) claims(request resource.TokenRequest, now time.Time) tokenClaims {
	bound := &boundClaims{
		Namespace: request.Namespace,
		Account:   &request.Account,
		Pod:       request.Pod,
		Secret:    request.Secret,
		Node:      request.Node,
	}
	lifetime := request.Lifetime
	if i.config.ExtendMounted && request.Pod != nil && lifetime == mountedLifetime && i.ours(request.Audiences) {
		bound.WarnAfter = jwt.NewNumericDate(now.Add(lifetime))
		lifetime = extendedLifetime
	}
	return tokenClaims{
		Claims: jwt.Claims{
			Issuer:    i.config.Issuer,
			Subject:   serviceaccount.MakeUsername(request.Namespace, request.Account.Name),
			Audience:  request.Audiences,
			Expiry:    jwt.NewNumericDate(now.Add(lifetime)),
			NotBefore: jwt.NewNumericDate(now),
			IssuedAt:  jwt.NewNumericDate(now),
			ID:        string(uuid.NewUUID()),
		},
		Bound: bound,
	}
}

// ours reports whether all audiences are those of the API server.
func (i *Issuer) ours(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(i.config.Audiences, a) })
}
