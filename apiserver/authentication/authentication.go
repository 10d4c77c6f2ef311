// Package authentication owns the authenticators of requests (document 2, section 5).
package authentication

import (
	cryptox509 "crypto/x509"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/utils/clock"
)

// Config selects the methods of authentication. An empty field disables its method.
type Config struct {
	// ClientCA are the authorities of client certificates; the subject's
	// common name is the user, its organizations are the groups.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader trusts the identity headers of a front proxy.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// TokenFile is a CSV file: token, user name, user uid, groups.
	TokenFile string
	// Tokens are further authenticators of bearer tokens. Each checks the
	// audiences of a token itself.
	Tokens []authenticator.Token
	// Audiences are those of the API server: the tokens of TokenFile are valid for
	// them. Empty if requests are not checked for audiences.
	Audiences authenticator.Audiences
	// CredentialIDs tells in the user's extra fields which client certificate was used
	// (since release 1.32).
	CredentialIDs bool
	// Clock is the clock by which certificates expire.
	Clock clock.PassiveClock
	// Anonymous gives requests without credentials the user system:anonymous.
	Anonymous bool
	// AnonymousPaths limit Anonymous to these paths; empty means all.
	AnonymousPaths []apiserver.AnonymousAuthCondition
}

const tokenCacheTTL = 10 * time.Second

// Authenticators are unions of the enabled methods.
type Authenticators struct {
	// Request authenticates by all methods, Identified by all except the
	// anonymous one.
	Request, Identified authenticator.Request
}

// New makes the authenticators: the first method that recognises a request decides.
func New(config Config) (Authenticators, error) {
	var methods []authenticator.Request
	if h := config.RequestHeader; h != nil {
		methods = append(methods, headerrequest.NewDynamicVerifyOptionsSecure(h.CAContentProvider.VerifyOptions,
			h.AllowedClientNames, h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeaderPrefixes))
	}
	if config.ClientCA != nil {
		var conversion x509.UserConversion = x509.CommonNameUserConversion
		if !config.CredentialIDs {
			conversion = withoutCredentialID(conversion)
		}
		methods = append(methods, newVerified(x509.NewDynamic(config.ClientCA.VerifyOptions, conversion), config.Clock))
	}
	tokens := slices.Clone(config.Tokens)
	if config.TokenFile != "" {
		file, err := tokenfile.NewCSV(config.TokenFile)
		if err != nil {
			return Authenticators{}, fmt.Errorf("--token-auth-file %s: %w", config.TokenFile, err)
		}
		// First: the others may ask another server.
		tokens = slices.Insert(tokens, 0, authenticator.WrapAudienceAgnosticToken(config.Audiences, file))
	}
	// This is needed without token authenticators, too: a request with a token
	// must be refused, not served as anonymous. Refusals are not cached here: a token may become
	// valid, and strangers could fill the cache. A webhook has a cache of its own.
	cached := tokencache.New(tokenunion.New(tokens...), false, tokenCacheTTL, 0)
	// Browsers cannot set a header of a websocket: the token is in its subprotocol.
	methods = append(methods, bearertoken.New(cached), websocket.NewProtocolAuthenticator(cached))
	identified := group.NewAuthenticatedGroupAdder(union.New(methods...))
	made := Authenticators{Request: identified, Identified: identified}
	if config.Anonymous {
		made.Request = union.NewFailOnError(identified, anonymous.NewAuthenticator(config.AnonymousPaths))
	}
	return made, nil
}

// withoutCredentialID returns a conversion whose users do not tell which certificate was
// used.
func withoutCredentialID(conversion x509.UserConversion) x509.UserConversion {
	return x509.UserConversionFunc(func(chain []*cryptox509.Certificate) (*authenticator.Response, bool, error) {
		response, ok, err := conversion.User(chain)
		if ok && err == nil {
			delete(response.User.GetExtra(), user.CredentialIDKey)
		}
		return response, ok, err
	})
}
