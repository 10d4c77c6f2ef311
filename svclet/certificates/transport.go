package certificates

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"svc.dev/svc/internal/clientcert"
)

// rotating is a transport with the current client certificate, which reports that the
// API server rejects it.
type rotating struct {
	*clientcert.Transport
	// rejected is called after a response 401 to a request with the current
	// certificate.
	rejected func()
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
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &rotating{rejected: rejected, Transport: clientcert.New(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: config, MaxIdleConnsPerHost: 25,
		IdleConnTimeout: 90 * time.Second,
	}, current)}, nil
}

// RoundTrip implements http.RoundTripper.
func (r *rotating) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.Transport.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		r.rejected()
	}
	return resp, err
}
