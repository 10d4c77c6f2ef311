package apiserver

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// reviewLimit is how much of the response of a webhook is read besides four times the
// size of the request. A response of an admission webhook has a patch in base64, of an
// object that bodycheck limits to 3 MiB; that of a conversion webhook has the objects of
// the request.
const reviewLimit = 16 << 20

// bounded limits the responses of webhooks: the libraries read them whole into memory.
func bounded(wrap webhook.AuthenticationInfoResolverWrapper) webhook.AuthenticationInfoResolverWrapper {
	return func(delegate webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		inner := wrap(delegate)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return withLimit(inner.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return withLimit(inner.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

func withLimit(config *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedResponses{next} })
	return config, nil
}

// limitedResponses limits how much of a response can be read.
type limitedResponses struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limitedResponses) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := reviewLimit + 4*max(0, req.ContentLength)
	resp.Body = &limitedBody{ReadCloser: resp.Body, limit: limit, left: limit}
	return resp, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (l limitedResponses) WrappedRoundTripper() http.RoundTripper { return l.next }

// limitedBody is a body that cannot be read beyond a limit.
type limitedBody struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader. Beyond the limit it returns an error.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one byte more tells a longer body from one that ends here
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		return int(b.left), fmt.Errorf("the response is longer than %d bytes", b.limit)
	}
	b.left -= int64(n)
	return n, err
}
