package stream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/streaming/pkg/httpstream/spdy"
)

// ParseRuntimeURL checks the URL at which the runtime serves a stream.
func ParseRuntimeURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("the container runtime names an unusable address for the stream: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the container runtime names an unusable address for the stream: scheme %q, host %q", u.Scheme, u.Host)
	}
	return u, nil
}

// spdyTransport connects to the runtime's streaming server, without a proxy. A TLS
// certificate there is self-signed by the runtime and is not verified: the
// one-time token in the URL, which came over the runtime's socket, authenticates
// the runtime.
//
// disconnect closes the connection. The SPDY library closes it only once all its
// streams have ended, which never happens if one of them was being opened.
func spdyTransport(runtime *url.URL) (transport *spdy.SpdyRoundTripper, disconnect func(), err error) {
	connector := &connector{}
	upgrades := &http.Transport{DialContext: connector.dial}
	if runtime.Scheme == "https" {
		upgrades.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // see above
	}
	transport, err = spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: upgrades})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the container runtime: %w", err)
	}
	return transport, connector.disconnect, nil
}

// connector is the connection of a transport that is used once.
type connector struct {
	mu   sync.Mutex
	conn net.Conn
}

func (l *connector) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = &closedOnce{Conn: c}
	return l.conn, nil
}

func (l *connector) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // the connection is over in any case
	}
}

// closedOnce returns no error when it is closed twice: the SPDY library would
// block until another goroutine receives the error.
type closedOnce struct {
	net.Conn
	once sync.Once
	err  error
}

func (c *closedOnce) Close() error {
	c.once.Do(func() { c.err = c.Conn.Close() })
	return c.err
}
