package launch

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Authority signs certificates of a cluster.
type Authority struct {
	// File is its own certificate.
	File        string
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes one, with its files ca.crt and ca.key in dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := WriteKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	a := &Authority{File: filepath.Join(dir, "ca.crt"), key: key, certificate: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "test-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	a.certificate, err = a.sign(a.File, a.certificate, key)
	return a, err
}

// ReadAuthority reads the files of one.
func ReadAuthority(certificate, key string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s cannot sign", key)
	}
	return &Authority{File: certificate, certificate: pair.Leaf, key: signer}, nil
}

// Authority is that of the cluster, which signs certificates of clients and of
// nodes.
func (s *Server) Authority() (*Authority, error) {
	pki := filepath.Join(s.DataDir, "pki")
	return ReadAuthority(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
}

// Client creates the files NAME.crt and NAME.key in dir, for a user in groups.
func (a *Authority) Client(dir, name, user string, groups ...string) error {
	return a.issue(dir, name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server creates the files NAME.crt and NAME.key in dir, for a server with names
// and addresses.
func (a *Authority) Server(dir, name, commonName string, names ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(dir, name, template)
}

// ServerUntil is Server with a certificate that ends at a time.
func (a *Authority) ServerUntil(dir, name string, end time.Time, names ...string) error {
	return a.issue(dir, name, &x509.Certificate{
		DNSNames: names, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Connection creates a connection file for a user in groups.
func (a *Authority) Connection(file, server, user string, groups ...string) error {
	dir, name := filepath.Dir(file), filepath.Base(file)
	if err := a.Client(dir, name, user, groups...); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: a.File}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate: filepath.Join(dir, name+".crt"), ClientKey: filepath.Join(dir, name+".key"),
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

func (a *Authority) issue(dir, name string, template *x509.Certificate) error {
	key, err := WriteKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return err
	}
	_, err = a.sign(filepath.Join(dir, name+".crt"), template, key)
	return err
}

func (a *Authority) sign(file string, template *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-24*time.Hour - time.Minute)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	return certificate, writePEM(file, "CERTIFICATE", der)
}

// WriteKey creates a key (ECDSA P-256, as those of svc are) and its file.
func WriteKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(file, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
