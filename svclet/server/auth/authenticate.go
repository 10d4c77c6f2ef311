package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Authentication configures which credentials the server accepts.
type Authentication struct {
	// Anonymous authenticates requests without any credential as system:anonymous.
	Anonymous bool
	// ClientCAs returns the certificate authorities of client certificates; nil
	// accepts none. It is called for each request, so that a connection does not
	// outlive the authority that admitted it.
	ClientCAs func() (*x509.CertPool, error)
	// TokenReview has the API server review bearer tokens.
	TokenReview bool
	// TokenTTL is how long the result of a TokenReview is cached.
	TokenTTL time.Duration
}

// Authenticator authenticates requests.
type Authenticator struct {
	o      Authentication
	api    reviewer
	clock  clock.PassiveClock
	tokens *cache.LRUExpireCache
	key    []byte // of the hashes under which tokens are cached
}

// The sizes of the caches of reviews.
const (
	rememberedTokens    = 4096
	rememberedDecisions = 8192
)

// NewAuthenticator returns an authenticator. api is needed only for token reviews.
func NewAuthenticator(o Authentication, api Reviews, c clock.PassiveClock) (*Authenticator, error) {
	if o.TokenReview && api == nil {
		return nil, errors.New("bearer tokens cannot be reviewed without a connection to an API server")
	}
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a key for remembered tokens: %w", err)
	}
	return &Authenticator{
		o: o, api: newReviewer(api), clock: c, key: key,
		tokens: cache.NewLRUExpireCacheWithClock(rememberedTokens, c),
	}, nil
}

// Authenticate returns the user of a request, or nil if the request is not
// authenticated. An error means that a credential was sent and is not valid; such
// a request is not anonymous either. A bearer token among the protocols of a
// websocket request is removed from them.
func (a *Authenticator) Authenticate(r *http.Request) (*User, error) {
	var refusals []error
	for _, credential := range []func(*http.Request) (*User, error){
		a.certificate, a.bearerToken, a.websocketToken,
	} {
		user, err := credential(r)
		if err != nil {
			refusals = append(refusals, err)
		}
		if user != nil {
			if !slices.Contains(user.Groups, authenticatedGroup) {
				user.Groups = append(slices.Clip(user.Groups), authenticatedGroup)
			}
			return user, nil
		}
	}
	if len(refusals) > 0 {
		return nil, errors.Join(refusals...)
	}
	if a.o.Anonymous {
		return anonymous(), nil
	}
	return nil, nil
}

// certificate authenticates a client certificate: its common name is the user, its
// organizations are the groups.
func (a *Authenticator) certificate(r *http.Request) (*User, error) {
	if a.o.ClientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	roots, err := a.o.ClientCAs()
	if err != nil {
		return nil, err
	}
	leaf := r.TLS.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: a.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("verify client certificate %s of %q: %w", leaf.SerialNumber, leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	print := sha256.Sum256(leaf.Raw)
	return &User{
		Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(print[:])}},
	}, nil
}

// bearerToken authenticates the token of the Authorization header (RFC 6750, 2.1).
func (a *Authenticator) bearerToken(r *http.Request) (*User, error) {
	if !a.o.TokenReview {
		return nil, nil
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, nil
	}
	return a.token(r.Context(), token)
}

// websocketToken authenticates a token in a websocket subprotocol, since browsers
// cannot set other headers.
func (a *Authenticator) websocketToken(r *http.Request) (*User, error) {
	const prefix = "base64url.bearer.authorization.k8s.io."
	const header = "Sec-Websocket-Protocol"
	if !a.o.TokenReview || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, nil
	}
	var encoded string
	var others []string
	for _, protocol := range strings.Split(strings.Join(r.Header.Values(header), ","), ",") {
		protocol = strings.TrimSpace(protocol)
		found, ok := strings.CutPrefix(protocol, prefix)
		switch {
		case !ok:
			others = append(others, protocol)
		case encoded != "":
			return nil, errors.New("more than one bearer token among the websocket protocols")
		default:
			encoded = found
		}
	}
	if encoded == "" {
		return nil, nil
	}
	token, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("the bearer token among the websocket protocols is not base64url")
	}
	if len(others) == 0 {
		return nil, errors.New("no websocket protocol beside the bearer token")
	}
	r.Header.Set(header, strings.Join(others, ","))
	return a.token(r.Context(), string(token))
}

// token has a token reviewed. Results are cached, errors are not.
func (a *Authenticator) token(ctx context.Context, token string) (*User, error) {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(token))
	key := string(mac.Sum(nil))

	answer, ok := a.tokens.Get(key)
	if !ok {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := a.api.review(ctx, review); err != nil {
			return nil, fmt.Errorf("review a bearer token: %w", err)
		}
		if review.Status.Error != "" && !review.Status.Authenticated {
			return nil, errors.New(review.Status.Error)
		}
		answer = userOf(review.Status)
		a.tokens.Add(key, answer, a.o.TokenTTL)
	}
	user, _ := answer.(*User)
	if user == nil {
		return nil, errors.New("invalid bearer token")
	}
	shown := *user
	return &shown, nil
}

func userOf(s authenticationv1.TokenReviewStatus) *User {
	if !s.Authenticated {
		return nil
	}
	return &User{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups, Extra: s.User.Extra}
}
