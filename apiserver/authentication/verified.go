package authentication

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
)

const (
	// verifiedTTL is how long the result of verifying a connection's certificate
	// is used: a change of the authorities takes effect within it.
	verifiedTTL = 10 * time.Second
	// maxVerified is the maximum number of cached results.
	maxVerified = 4096
)

// verified caches the user of each connection's certificate: verifying a signature
// costs more than reading an object.
type verified struct {
	verify    authenticator.Request
	responses *cache.LRUExpireCache
	clock     clock.PassiveClock
}

func newVerified(verify authenticator.Request, clock clock.PassiveClock) *verified {
	return &verified{verify: verify, responses: cache.NewLRUExpireCacheWithClock(maxVerified, clock), clock: clock}
}

// AuthenticateRequest implements authenticator.Request.
func (v *verified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	// Every connection has a certificate object of its own, so that its address
	// identifies the connection and the intermediates that came with it.
	leaf := req.TLS.PeerCertificates[0]
	if response, ok := v.responses.Get(leaf); ok {
		return response.(*authenticator.Response), true, nil
	}
	response, ok, err := v.verify.AuthenticateRequest(req)
	if ok && err == nil {
		v.responses.Add(leaf, response, min(verifiedTTL, leaf.NotAfter.Sub(v.clock.Now())))
	}
	return response, ok, err
}
