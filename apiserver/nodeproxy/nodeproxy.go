// Package nodeproxy owns the API server's connections to the agents of nodes, to
// pods and to services, and the authorization that exec, attach, port-forward
// and upgrades through nodes/proxy need beyond their HTTP method.
package nodeproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/clientcert"
)

// New makes the transports that o configures. Certificates are reloaded when
// their files change.
func New(o options.Agents) (resource.Agents, error) {
	agents := resource.Agents{Other: newUnauthenticated(o.Timeout)}
	for _, t := range o.AddressTypes {
		agents.AddressTypes = append(agents.AddressTypes, corev1.NodeAddressType(t))
	}
	var certificate func() *tls.Certificate
	if o.CertFile != "" {
		files, err := clientcert.Open(o.CertFile, o.KeyFile)
		if err != nil {
			return agents, fmt.Errorf("--svclet-client-certificate: %w", err)
		}
		certificate = files.Current
	}
	var err error
	if o.CAFile != "" {
		if agents.Transport, err = newAgentTransport(transport.TLSConfig{CAFile: o.CAFile}, certificate, o.Timeout); err != nil {
			return agents, err
		}
	}
	agents.Unverified, err = newAgentTransport(transport.TLSConfig{Insecure: true}, certificate, o.Timeout)
	return agents, err
}

// newAgentTransport makes a transport to agents, with the current client certificate if
// certificate is not nil. It ignores the proxy that the server's environment may name
// for outgoing connections.
func newAgentTransport(secured transport.TLSConfig, certificate func() *tls.Certificate, timeout time.Duration) (http.RoundTripper, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: secured})
	if err != nil {
		return nil, err
	}
	config.VerifyConnection = notAPIServer
	base := &http.Transport{
		// An agent that says nothing ends the handshake sooner, with an error that names it.
		TLSClientConfig: config, TLSHandshakeTimeout: 2 * timeout, MaxIdleConnsPerHost: 25,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, dialer(timeout), network, address)
		},
	}
	if certificate == nil {
		return utilnet.SetTransportDefaults(base), nil
	}
	return clientcert.New(base, certificate), nil
}

// apiServerName is a DNS name in the certificate of every API server: pods use it
// to reach the server.
const apiServerName = "kubernetes.default.svc"

// notAPIServer refuses connections to API servers. A node reports the address of
// its agent itself; if that is the address of an API server, a user who may use
// the proxy of this one node would act there with this server's permissions.
func notAPIServer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) > 0 && state.PeerCertificates[0].VerifyHostname(apiServerName) == nil {
		return fmt.Errorf("the node's address leads to an API server, not to an agent: its certificate is for %s", apiServerName)
	}
	return nil
}

// newUnauthenticated makes the transport to pods, services and other ports of
// nodes. No authority has signed their certificates, and their names may resolve
// to any address: the dialer refuses those of the server's own machine.
func newUnauthenticated(timeout time.Duration) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	d := dialer(timeout)
	d.Control = refuseLocal
	t.DialContext = d.DialContext
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	return t
}

func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}
}

// refuseLocal refuses addresses that are not global unicast: loopback, link-local,
// multicast and unspecified ones.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !to.Addr().Unmap().IsGlobalUnicast() {
		return errors.New("address not allowed")
	}
	return nil
}
