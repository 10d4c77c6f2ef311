package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"
)

// certificates are the serving certificate and the certificate authorities of
// clients.
type certificates struct {
	clock clock.PassiveClock
	pair  *reloaded[*tls.Certificate]
	cas   *reloaded[*x509.CertPool] // nil: no client certificate is accepted

	// selfSigned creates a new self-signed pair; nil if the pair is configured.
	selfSigned func() error
	mu         sync.Mutex
	// issued returns the serving certificate that another part of the agent renews; nil
	// if pair has it.
	issued func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

func newCertificates(o Options, c clock.PassiveClock) (*certificates, error) {
	if (o.TLSCertFile == "") != (o.TLSPrivateKeyFile == "") {
		return nil, errors.New("of tlsCertFile and tlsPrivateKeyFile, one is given and the other is not")
	}
	cs := &certificates{clock: c, issued: o.Serving}
	if cs.issued == nil {
		if err := cs.openPair(o); err != nil {
			return nil, err
		}
	}
	if o.ClientCAFile != "" {
		cs.cas = &reloaded[*x509.CertPool]{what: "client authorities (--client-ca-file)", paths: []string{o.ClientCAFile}, parse: parseAuthorities}
		if _, err := cs.cas.get(); err != nil {
			return nil, err
		}
	}
	return cs, nil
}

// openPair loads the configured pair, or the self-signed one, which it creates if there
// is none for the node's addresses.
func (cs *certificates) openPair(o Options) error {
	certFile, keyFile := o.TLSCertFile, o.TLSPrivateKeyFile
	if certFile == "" {
		certFile, keyFile = filepath.Join(o.CertDirectory, "svclet.crt"), filepath.Join(o.CertDirectory, "svclet.key")
		cs.selfSigned = func() error { return writeSelfSigned(o.NodeName, o.Addresses, certFile, keyFile) }
	}
	cs.pair = &reloaded[*tls.Certificate]{what: "serving certificate (--tls-cert-file, --tls-private-key-file)", paths: []string{certFile, keyFile}, parse: parsePair}
	if cs.selfSigned != nil {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil || !names(pair.Leaf, o.Addresses) {
			if err := cs.selfSigned(); err != nil {
				return err
			}
		}
	}
	_, err := cs.get(nil)
	return err
}

// names reports whether a certificate is for each of these addresses.
func names(leaf *x509.Certificate, addresses []net.IP) bool {
	return !slices.ContainsFunc(addresses, func(ip net.IP) bool { return leaf.VerifyHostname(ip.String()) != nil })
}

// config returns the listener's TLS configuration, which checks the files at each
// handshake.
func (cs *certificates) config(o Options) (*tls.Config, error) {
	minVersion, err := flag.TLSVersion(o.TLSMinVersion)
	if err != nil {
		return nil, fmt.Errorf("tlsMinVersion: %w", err)
	}
	suites, err := flag.TLSCipherSuites(o.TLSCipherSuites)
	if err != nil {
		return nil, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	exchanges, err := flag.TLSCurvePreferences(o.TLSCurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	base := &tls.Config{
		MinVersion: minVersion, CipherSuites: suites, CurvePreferences: exchanges, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: cs.get,
	}
	if cs.cas == nil {
		return base, nil
	}
	// The certificate is optional here and verified by the authenticator: a client may
	// have another credential.
	base.ClientAuth = tls.RequestClientCert
	asking := base.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := cs.cas.get()
		if err != nil {
			return nil, err
		}
		c := base.Clone()
		c.ClientCAs = pool // tells clients which of their certificates to send
		return c, nil
	}
	return asking, nil
}

// clientCAs returns the function for the authenticator; nil without a CA file.
func (cs *certificates) clientCAs() func() (*x509.CertPool, error) {
	if cs.cas == nil {
		return nil
	}
	return cs.cas.get
}

// get returns the serving certificate. A self-signed one is replaced after it has
// expired.
func (cs *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cs.issued != nil {
		return cs.issued(hello)
	}
	pair, err := cs.pair.get()
	if err != nil || cs.selfSigned == nil || cs.clock.Now().Before(pair.Leaf.NotAfter) {
		return pair, err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if pair, err = cs.pair.get(); err != nil || cs.clock.Now().Before(pair.Leaf.NotAfter) {
		return pair, err // another goroutine has created it
	}
	if err := cs.selfSigned(); err != nil {
		return nil, err
	}
	return cs.pair.get()
}

func parsePair(files [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

func parseAuthorities(files [][]byte) (*x509.CertPool, error) {
	certs, err := cert.ParseCertsPEM(files[0])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

// writeSelfSigned creates a self-signed certificate for the node's name and
// addresses, valid for a year.
func writeSelfSigned(name string, addresses []net.IP, certFile, keyFile string) error {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("make a self-signed certificate: %w", err)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(name, addresses, nil)
	if err != nil {
		return fmt.Errorf("make a self-signed certificate for %q: %w", name, err)
	}
	if err := keyutil.WriteKey(keyFile, keyPEM); err != nil {
		return fmt.Errorf("write the key of the self-signed certificate (--cert-dir): %w", err)
	}
	if err := cert.WriteCert(certFile, certPEM); err != nil {
		return fmt.Errorf("write the self-signed certificate (--cert-dir): %w", err)
	}
	return nil
}
