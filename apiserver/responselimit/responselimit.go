// Package responselimit owns the limit of the responses that the API server reads from
// the webhooks it asks: the libraries read them whole into memory.
package responselimit

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// Review is the limit of the responses to reviews of tokens, access and images, which
// are small.
const Review = 1 << 20

// Of returns a copy of config whose clients read at most limit bytes of a response,
// besides four times the size of the request. Compressed responses are limited by their
// size without compression.
func Of(config *rest.Config, limit int64) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedResponses{next, limit} })
	return config
}

// limitedResponses limits how much of a response can be read.
type limitedResponses struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (l limitedResponses) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := l.limit + 4*max(0, req.ContentLength)
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
