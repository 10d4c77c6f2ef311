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
	"slices"
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

// usagesOf has the usages of keys (RFC 5280, section 4.2.1.3), and extendedOf the extended
// ones (section 4.2.1.12), by their names in requests.
var (
	usagesOf = map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
	extendedOf = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
)

// keyUsages returns the usages of a certificate. Which ones a request may have is a rule of
// its signer: the one of legacy requests allows all.
func keyUsages(usages []certificatesv1.KeyUsage) (usage x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	for _, u := range usages {
		plain, isPlain := usagesOf[u]
		ext, isExtended := extendedOf[u]
		switch {
		case isPlain:
			usage |= plain
		case !isExtended:
			return 0, nil, errors.New("unrecognized usage: " + string(u))
		case !slices.Contains(extended, ext):
			extended = append(extended, ext)
		}
	}
	slices.Sort(extended)
	return usage, extended, nil
}
