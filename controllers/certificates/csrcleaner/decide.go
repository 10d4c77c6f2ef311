package csrcleaner

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// How long requests are kept, as in kube-controller-manager: after their certificate
// is issued, after they are denied or have failed, and while no signer handles them.
const (
	issuedKept  = time.Hour
	refusedKept = time.Hour
	pendingKept = 24 * time.Hour
)

// due returns when a request is to be deleted, and why; the zero time is never.
func due(csr *certificatesv1.CertificateSigningRequest) (at time.Time, why string) {
	sooner := func(t time.Time, reason string) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at, why = t, reason
		}
	}
	issued := len(csr.Status.Certificate) > 0
	if issued {
		sooner(expiry(csr.Status.Certificate), "its certificate has expired")
	}
	if len(csr.Status.Conditions) == 0 {
		sooner(after(csr.CreationTimestamp.Time, pendingKept), "it was not handled")
	}
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateApproved && issued:
			sooner(after(c.LastUpdateTime.Time, issuedKept), "its certificate was issued")
		case c.Type == certificatesv1.CertificateApproved:
			sooner(after(c.LastUpdateTime.Time, pendingKept), "it was approved and not signed")
		case c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed:
			sooner(after(c.LastUpdateTime.Time, refusedKept), "it was denied or has failed")
		}
	}
	return at, why
}

// after returns the time d after t, the zero time for the zero time.
func after(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}

// expiry returns the end of the first certificate in PEM, the zero time if there is
// none.
func expiry(content []byte) time.Time {
	block, _ := pem.Decode(content)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}
