package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// newDialer makes connections leave the TIME-WAIT state after a second instead of
// a minute, so that probes do not exhaust the node's ports.
func newDialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
		return errors.Join(err, failed)
	}}
}

// bufferSize is the size of a connection's buffers: each run has its own, and most
// answers are short.
const bufferSize = 1 << 10

// newTransport returns a transport with a new connection for each request, without
// a proxy and without certificate verification: a probe checks whether a server
// answers, not its identity.
func newTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // over TLS, if the server selects it
	return &http.Transport{
		DialContext:         newDialer().DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: 10 * time.Second,
		DisableKeepAlives:   true,
		DisableCompression:  true,
		Protocols:           protocols,
		ReadBufferSize:      bufferSize,
		WriteBufferSize:     bufferSize,
	}
}

// newHTTP2Transport returns a transport that speaks HTTP/2 without TLS. It verifies the
// certificate of a server with TLS, to which a redirect may lead, as kubelet does.
func newHTTP2Transport() *http.Transport {
	transport := newTransport()
	transport.TLSClientConfig = nil
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

func (m *Manager) http(ctx context.Context, t target, action *corev1.HTTPGetAction, timeout time.Duration) outcome {
	request, err := m.request(ctx, t, action, "probe")
	if err != nil {
		return outcome{verdict: unknown, err: err}
	}
	transport := m.transport
	if ptr.Deref(action.Protocol, corev1.HTTPProtocolHTTP1) == corev1.HTTPProtocolHTTP2 {
		transport = m.http2
	}
	response, err := client(transport, timeout).Do(request)
	if err != nil {
		return failed(err.Error())
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	switch code := response.StatusCode; {
	case err != nil:
		return outcome{verdict: failure, err: err}
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return outcome{verdict: warning, output: fmt.Sprintf("Probe terminated redirects, Response body: %s", body)}
	case code >= http.StatusOK && code < http.StatusBadRequest:
		return outcome{verdict: success, output: string(body)}
	default:
		// The body may be confidential, and events are widely readable.
		return failed(fmt.Sprintf("HTTP probe failed with statuscode: %d", code))
	}
}

// client returns a client that follows redirects, but not to another host.
func client(transport *http.Transport, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: transport,
		Timeout:   timeout,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= 10:
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

// request returns the request of an HTTP handler; purpose is used in its
// User-Agent.
func (m *Manager) request(ctx context.Context, t target, action *corev1.HTTPGetAction, purpose string) (*http.Request, error) {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(action.Path)
	if err != nil {
		to = &url.URL{Path: action.Path}
	}
	to.Scheme, to.Host = strings.ToLower(string(action.Scheme)), address
	if to.Scheme == "" {
		to.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header = m.headers(action.HTTPHeaders, purpose)
	request.Host = request.Header.Get("Host")
	return request, nil
}

// headers returns the headers of the request. An empty Accept header of the
// handler removes the default.
func (m *Manager) headers(wanted []corev1.HTTPHeader, purpose string) http.Header {
	headers := http.Header{}
	for _, each := range wanted {
		headers.Add(each.Name, each.Value)
	}
	if _, ok := headers["User-Agent"]; !ok {
		headers.Set("User-Agent", "kube-"+purpose+"/"+m.options.Version)
	}
	if _, ok := headers["Accept"]; !ok {
		headers.Set("Accept", "*/*")
	} else if headers.Get("Accept") == "" {
		headers.Del("Accept")
	}
	return headers
}
