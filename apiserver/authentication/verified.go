package authentication

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// verifiedTTL is for how long a certificate is not verified again on the
	// same connection: a changed authority takes effect within it.
	verifiedTTL = 10 * time.Second
	// maxVerified bounds the connections that are remembered.
	maxVerified = 4096
)

// verified remembers what the certificate of a connection proved. Verifying a
// signature costs more than reading an object.
type verified struct {
	verify    authenticator.Request
	responses *cache.LRUExpireCache
}

func newVerified(verify authenticator.Request) *verified {
	return &verified{verify: verify, responses: cache.NewLRUExpireCache(maxVerified)}
}

// AuthenticateRequest implements authenticator.Request.
func (v *verified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	// The certificate is the connection's: its address stands for it and for
	// the intermediates that came with it.
	leaf := req.TLS.PeerCertificates[0]
	if response, ok := v.responses.Get(leaf); ok {
		return response.(*authenticator.Response), true, nil
	}
	response, ok, err := v.verify.AuthenticateRequest(req)
	if ok && err == nil {
		v.responses.Add(leaf, response, min(verifiedTTL, time.Until(leaf.NotAfter)))
	}
	return response, ok, err
}
