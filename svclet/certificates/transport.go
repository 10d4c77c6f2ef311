package certificates

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// rotating is a transport whose new connections use the current client certificate.
// After a renewal, requests in flight keep the connections of the certificate before,
// which close when they become idle.
type rotating struct {
	current func() *tls.Certificate
	// rejected is called after a response 401 to a request with the current
	// certificate.
	rejected func()
	tls      *tls.Config

	mu   sync.Mutex
	pair *tls.Certificate
	next *http.Transport
}

func newRotating(api *rest.Config, current func() *tls.Certificate, rejected func()) (*rotating, error) {
	config, err := rest.TLSConfigFor(api)
	if err != nil {
		return nil, fmt.Errorf("--svcconfig: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.Certificates, config.GetClientCertificate = nil, nil
	return &rotating{current: current, rejected: rejected, tls: config}, nil
}

// RoundTrip implements http.RoundTripper.
func (r *rotating) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.get().RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		r.rejected()
	}
	return resp, err
}

// get returns the transport of the current certificate.
func (r *rotating) get() *http.Transport {
	pair := r.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil && r.pair == pair {
		return r.next
	}
	if r.next != nil {
		r.next.CloseIdleConnections()
	}
	config := r.tls.Clone()
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	r.pair, r.next = pair, utilnet.SetTransportDefaults(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: config, MaxIdleConnsPerHost: 25,
		IdleConnTimeout: 90 * time.Second,
	})
	return r.next
}

// close closes idle connections.
func (r *rotating) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		r.next.CloseIdleConnections()
	}
}
