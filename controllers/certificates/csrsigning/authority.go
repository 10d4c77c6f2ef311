package csrsigning

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// minLifetime is the shortest that a certificate is valid.
	minLifetime = 10 * time.Minute
	// backdate is how far in the past a certificate's validity begins, for clocks that
	// are behind.
	backdate = 5 * time.Minute
	// short is the lifetime below which the end is not backdated, too.
	short = 8 * time.Hour
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// readAuthority reads the files of an authority. The errors name the file.
func readAuthority(certFile, keyFile string) (*authority, error) {
	certs, err := cert.CertsFromFile(certFile)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	private, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign certificates", keyFile, private)
	}
	if public, ok := certs[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	return &authority{certs[0], key}, nil
}

// lifetime returns how long a certificate is valid, given the seconds that its request
// asks for.
func lifetime(requested *int32, longest time.Duration) time.Duration {
	if requested == nil {
		return longest
	}
	return min(max(time.Duration(*requested)*time.Second, minLifetime), longest)
}

// sign returns the certificate of a request, in PEM. It has the subject and the names
// of the request, and none of its extensions.
func (a *authority) sign(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage, lifetime time.Duration, now time.Time) ([]byte, error) {
	if !now.Before(a.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate authority has expired at %s", a.cert.NotAfter.Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject,
		DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses, URIs: r.URIs,
		BasicConstraintsValid: true,
		NotBefore:             now.Add(-backdate), NotAfter: now.Add(lifetime),
	}
	if lifetime >= short {
		template.NotAfter = template.NotAfter.Add(-backdate)
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	if template.KeyUsage, template.ExtKeyUsage, err = keyUsages(usages); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, r.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), nil
}

// keyUsages returns the usages of a certificate: those that the rules of the signers
// allow.
func keyUsages(usages []certificatesv1.KeyUsage) (usage x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageSigning:
			usage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			usage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			extended = append(extended, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			extended = append(extended, x509.ExtKeyUsageServerAuth)
		default:
			return 0, nil, errors.New("unrecognized usage: " + string(u))
		}
	}
	return usage, extended, nil
}
