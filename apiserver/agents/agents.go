// Package agents connects the API server with the agents of nodes, for logs,
// exec and the like, and guards the way into containers.
package agents

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/transport"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/options"
)

// New makes the connections that o describes. Certificates are read again when
// their files change.
func New(o options.Agents) (resource.Agents, error) {
	agents := resource.Agents{Other: plain(o.Timeout)}
	for _, t := range o.AddressTypes {
		agents.AddressTypes = append(agents.AddressTypes, corev1.NodeAddressType(t))
	}
	secured := transport.TLSConfig{CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ReloadTLSFiles: true}
	var err error
	if o.CAFile != "" {
		if agents.Transport, err = over(secured, o.Timeout); err != nil {
			return agents, err
		}
	}
	secured.CAFile, secured.Insecure = "", true
	agents.Unverified, err = over(secured, o.Timeout)
	return agents, err
}

func over(secured transport.TLSConfig, timeout time.Duration) (http.RoundTripper, error) {
	return transport.New(&transport.Config{TLS: secured, DialHolder: &transport.DialHolder{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialTLS(ctx, dialer(timeout), network, address)
	}}})
}

// plain is for pods, services and other ports of nodes. Nobody vouches for the
// certificates of what runs there, nor for the names: none of them may lead to
// the server's own machine.
func plain(timeout time.Duration) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	d := dialer(timeout)
	d.Control = outward
	t.DialContext = d.DialContext
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	return t
}

func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}
}

// outward refuses addresses that are the server's own, or nobody's.
func outward(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !to.Addr().Unmap().IsGlobalUnicast() {
		return errors.New("address not allowed")
	}
	return nil
}
