// Package clientcert owns HTTP transports whose client certificate is renewed while
// they are used.
package clientcert

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Transport is a transport whose new connections use the current client certificate.
// After a renewal, requests in flight keep the connections of the certificate before,
// which close when they become idle. The transport of client-go closes them at once.
type Transport struct {
	base    *http.Transport
	current func() *tls.Certificate
	// authorities returns those of the server; nil is for those of base.
	authorities func() *x509.CertPool

	mu    sync.Mutex
	pair  *tls.Certificate
	roots *x509.CertPool
	next  *http.Transport
}

// New returns a transport that is as base, which has a TLSClientConfig and is not used
// itself. A nil certificate is none.
func New(base *http.Transport, current func() *tls.Certificate) *Transport {
	return &Transport{base: base, current: current}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.get().RoundTrip(req)
}

// WrappedRoundTripper returns the transport of the current certificate: it implements
// net.RoundTripperWrapper of apimachinery.
func (t *Transport) WrappedRoundTripper() http.RoundTripper { return t.get() }

// CloseIdleConnections closes the idle connections of the current certificate.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		t.next.CloseIdleConnections()
	}
}

func (t *Transport) get() *http.Transport {
	pair, roots := t.current(), t.base.TLSClientConfig.RootCAs
	if t.authorities != nil {
		roots = t.authorities()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil && t.pair == pair && t.roots == roots {
		return t.next
	}
	if t.next != nil {
		t.next.CloseIdleConnections()
	}
	next := t.base.Clone()
	next.TLSClientConfig.RootCAs = roots
	if pair != nil {
		next.TLSClientConfig.Certificates = []tls.Certificate{*pair}
	}
	t.pair, t.roots, t.next = pair, roots, utilnet.SetTransportDefaults(next)
	return t.next
}
