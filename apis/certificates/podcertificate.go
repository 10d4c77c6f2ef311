package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The greatest sizes of a pod's request and of its certificate, in bytes.
const (
	maxStub  = 10 << 10
	maxChain = 100 << 10
)

const (
	// maxSkew is how far the clocks of a signer and the server may differ.
	maxSkew = 5 * time.Minute
	// refreshMargin lies between the refresh of a certificate and both ends of
	// its life.
	refreshMargin = 10 * time.Minute
)

// validateStub validates a certificate request in DER, but not its contents, which
// the signer checks.
func validateStub(path *field.Path, der []byte) field.ErrorList {
	if len(der) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(der) > maxStub {
		return field.ErrorList{field.TooLong(path, "", maxStub)}
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if fault := keyFault(csr.PublicKey); fault != "" {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fault)}
	}
	if csr.CheckSignature() != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}

// keyFault returns the problem of a public key, "" if there is none.
func keyFault(public crypto.PublicKey) string {
	switch key := public.(type) {
	case ed25519.PublicKey:
		return ""
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return "elliptic public keys must use curve P256, P384, or P521"
		}
		return ""
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return "RSA keys must have modulus size 3072 or 4096"
		}
		return ""
	}
	return "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
}

// validateIssued validates an issued certificate and the times in the status, which
// must match it.
func validateIssued(path *field.Path, r *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	chain := path.Child("certificateChain")
	leaf, errs := parseChain(chain, r.Status.CertificateChain)
	if len(errs) > 0 {
		return errs
	}
	public, errs := requestedKey(r)
	if len(errs) > 0 {
		return errs
	}
	if wanted, ok := public.(interface{ Equal(crypto.PublicKey) bool }); !ok || !wanted.Equal(leaf.PublicKey) {
		return field.ErrorList{field.Invalid(chain, r.Status.CertificateChain, "leaf certificate was not issued to the requested public key")}
	}
	if errs := validateTimes(path, &r.Status, leaf, now); len(errs) > 0 {
		return errs
	}
	life, limit := leaf.NotAfter.Sub(leaf.NotBefore), *r.Spec.MaxExpirationSeconds
	switch {
	case life < time.Duration(minPodLife)*time.Second:
		return field.ErrorList{field.Invalid(chain, life.String(), "leaf certificate lifetime must be >= 1 hour")}
	case life > time.Duration(limit)*time.Second:
		return field.ErrorList{field.Invalid(chain, life.String(), fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", limit))}
	}
	return nil
}

// requestedKey returns the public key that a certificate is requested for.
func requestedKey(r *certificatesv1.PodCertificateRequest) (crypto.PublicKey, field.ErrorList) {
	if len(r.Spec.StubPKCS10Request) == 0 {
		public, err := x509.ParsePKIXPublicKey(carried(r, keyAnnotation))
		if err != nil {
			return nil, field.ErrorList{field.Invalid(field.NewPath("spec", "pkixPublicKey"), field.OmitValueType{}, "must be a valid PKIX-serialized public key")}
		}
		return public, nil
	}
	csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	return csr.PublicKey, nil
}

// parseChain returns the first certificate of a chain in PEM, of which all
// must be certificates.
func parseChain(path *field.Path, chain string) (*x509.Certificate, field.ErrorList) {
	if len(chain) > maxChain {
		return nil, field.ErrorList{field.TooLong(path, "", maxChain)}
	}
	var leaf *x509.Certificate
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, field.ErrorList{field.Invalid(path, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")}
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return nil, field.ErrorList{field.Invalid(path, chain, "leaf certificate does not parse as valid X.509")}
		case err != nil:
			return nil, field.ErrorList{field.Invalid(path, chain, "intermediate certificate does not parse as valid X.509")}
		case leaf == nil:
			leaf = certificate
		}
	}
	if leaf == nil {
		return nil, field.ErrorList{field.Invalid(path, chain, "issued certificate chain must contain at least one certificate")}
	}
	return leaf, nil
}

func validateTimes(path *field.Path, s *certificatesv1.PodCertificateRequestStatus, leaf *x509.Certificate, now time.Time) field.ErrorList {
	notBefore, notAfter, refresh := path.Child("notBefore"), path.Child("notAfter"), path.Child("beginRefreshAt")
	var errs field.ErrorList
	if s.NotBefore == nil {
		errs = append(errs, field.Required(notBefore, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(notAfter, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refresh, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	if len(errs) > 0 {
		return errs
	}
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		errs = append(errs, field.Invalid(notBefore, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate"))
	case now.Sub(s.NotBefore.Time).Abs() >= maxSkew:
		errs = append(errs, field.Invalid(notBefore, s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time"))
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		errs = append(errs, field.Invalid(notAfter, s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate"))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		errs = append(errs, field.Invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore"))
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshMargin)):
		errs = append(errs, field.Invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter"))
	}
	return errs
}
