package apiclient

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// unauthorized replaces the answer 401 of the API server by an error if the client
// certificate is not valid now: the server does not say why it rejects a client.
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

// reason returns an error if the client certificate is not valid now, and nil if it
// is or there is none.
func (u *unauthorized) reason() error {
	data, what := u.from.CertData, "the client certificate of --svcconfig"
	if len(data) == 0 {
		var err error
		if data, err = os.ReadFile(u.from.CertFile); err != nil {
			return nil // There is none, or the connection fails for it.
		}
		what = "the client certificate " + u.from.CertFile
	}
	chain, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil
	}
	switch now := u.clock.Now(); {
	case now.After(chain[0].NotAfter):
		return fmt.Errorf("%s has expired at %s: put a new one in its place", what, chain[0].NotAfter.Format(time.RFC3339))
	case now.Before(chain[0].NotBefore):
		return fmt.Errorf("%s is not valid before %s, and the clock shows %s: set the clock", what, chain[0].NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
