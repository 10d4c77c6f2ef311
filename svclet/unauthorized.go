package svclet

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// unauthorized says why the API server does not know the agent, where that is for
// the time in which its client certificate is valid: the server only says that it
// does not.
type unauthorized struct {
	next  http.RoundTripper
	from  rest.TLSClientConfig
	clock clock.PassiveClock
}

// RoundTrip implements http.RoundTripper.
func (u *unauthorized) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	if reason := u.reason(); reason != nil {
		resp.Body.Close()
		return nil, reason
	}
	return resp, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (u *unauthorized) WrappedRoundTripper() http.RoundTripper { return u.next }

// reason is nil where the certificate, if there is one, is valid now.
func (u *unauthorized) reason() error {
	data, what := u.from.CertData, "the client certificate of --svcconfig"
	if len(data) == 0 {
		var err error
		if data, err = os.ReadFile(u.from.CertFile); err != nil {
			return nil // there is none, or the connection tells
		}
		what = "the client certificate " + u.from.CertFile
	}
	chain, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil // the same
	}
	switch now := u.clock.Now(); {
	case now.After(chain[0].NotAfter):
		return fmt.Errorf("%s has expired at %s: put a new one in its place", what, chain[0].NotAfter.Format(time.RFC3339))
	case now.Before(chain[0].NotBefore):
		return fmt.Errorf("%s is not valid before %s, and the clock shows %s: set the clock", what, chain[0].NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
