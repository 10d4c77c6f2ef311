// Package agents connects the API server with the agents of nodes, for logs,
// exec and the like, and guards the way into containers.
package agents

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

// over makes connections with agents. The server's environment may name a proxy
// for the way out; there is none on the way to nodes.
func over(secured transport.TLSConfig, timeout time.Duration) (http.RoundTripper, error) {
	made, err := transport.New(&transport.Config{
		TLS:   secured,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		DialHolder: &transport.DialHolder{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, dialer(timeout), network, address)
		}},
	})
	if err != nil {
		return nil, err
	}
	inner, ok := unwrap(made)
	if !ok || inner.TLSClientConfig == nil {
		return nil, fmt.Errorf("connections with agents cannot be checked: the transport is a %T", made)
	}
	inner.TLSClientConfig.VerifyConnection = notAPIServer
	return made, nil
}

func unwrap(t http.RoundTripper) (*http.Transport, bool) {
	for {
		wrapper, ok := t.(utilnet.RoundTripperWrapper)
		if !ok {
			inner, ok := t.(*http.Transport)
			return inner, ok
		}
		t = wrapper.WrappedRoundTripper()
	}
}

// apiServerName is in the certificate of every API server, for the pods of its
// cluster.
const apiServerName = "kubernetes.default.svc"

// notAPIServer refuses API servers. A node says itself at which address its agent
// is; if that is an API server's, whoever may use the proxy of this one node would
// do there what this server itself may do with all of them.
func notAPIServer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) > 0 && state.PeerCertificates[0].VerifyHostname(apiServerName) == nil {
		return fmt.Errorf("the node's address leads to an API server, not to an agent: its certificate is for %s", apiServerName)
	}
	return nil
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
