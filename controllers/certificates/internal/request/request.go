// Package request reads the requests in CertificateSigningRequests, and has the
// rules of Kubernetes' signers about them.
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests#kubernetes-signers
package request

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// Parse returns the request, in PEM, whose signature has been checked.
func Parse(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return parsed, parsed.CheckSignature()
}

// Has reports whether a request has a condition that is true.
func Has(csr *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == condition && (c.Status == corev1.ConditionTrue || c.Status == "")
	})
}

// A Rule returns an error if the signer does not sign such a request.
type Rule func(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error

// Rules are those of each signer. A signer that is not here is not Kubernetes' own.
func Rules() map[string][]Rule {
	const client, serving = certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth
	return map[string][]Rule{
		certificatesv1.KubeAPIServerClientSignerName:        {clientUsages},
		certificatesv1.KubeAPIServerClientKubeletSignerName: {ofNodes, withoutNames, withoutContacts, named, usages(client)},
		certificatesv1.KubeletServingSignerName:             {ofNodes, withName, withoutContacts, named, usages(serving)},
		"kubernetes.io/legacy-unknown":                      nil, // any request that an administrator approves
	}
}

// Check returns the first error of the signer's rules. A signer that is not
// Kubernetes' own has an error.
func Check(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	rules, known := Rules()[signer]
	if !known {
		return fmt.Errorf("unknown signer %q", signer)
	}
	for _, holds := range rules {
		if err := holds(r, usages); err != nil {
			return err
		}
	}
	return nil
}

func ofNodes(r *x509.CertificateRequest, _ []certificatesv1.KeyUsage) error {
	if !slices.Equal(r.Subject.Organization, []string{"system:nodes"}) {
		return errors.New("subject organization is not system:nodes")
	}
	return nil
}

func named(r *x509.CertificateRequest, _ []certificatesv1.KeyUsage) error {
	if !strings.HasPrefix(r.Subject.CommonName, "system:node:") {
		return errors.New("subject common name does not begin with system:node:") //nolint:staticcheck // Kubernetes' words
	}
	return nil
}

func withoutNames(r *x509.CertificateRequest, _ []certificatesv1.KeyUsage) error {
	if len(r.DNSNames) > 0 {
		return errors.New("DNS subjectAltNames are not allowed")
	}
	if len(r.IPAddresses) > 0 {
		return errors.New("IP subjectAltNames are not allowed")
	}
	return nil
}

func withName(r *x509.CertificateRequest, _ []certificatesv1.KeyUsage) error {
	if len(r.DNSNames) == 0 && len(r.IPAddresses) == 0 {
		return errors.New("DNS or IP subjectAltName is required")
	}
	return nil
}

func withoutContacts(r *x509.CertificateRequest, _ []certificatesv1.KeyUsage) error {
	if len(r.EmailAddresses) > 0 {
		return errors.New("Email subjectAltNames are not allowed") //nolint:staticcheck // Kubernetes' words
	}
	if len(r.URIs) > 0 {
		return errors.New("URI subjectAltNames are not allowed")
	}
	return nil
}

// usages requires the usage beside that of signatures; RSA keys may have key
// encipherment, too.
func usages(purpose certificatesv1.KeyUsage) Rule {
	return func(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		want := []certificatesv1.KeyUsage{purpose, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
		slices.Sort(want)
		got := slices.Compact(slices.Sorted(slices.Values(usages)))
		without := slices.DeleteFunc(slices.Clone(want), func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment })
		if !slices.Equal(got, want) && !slices.Equal(got, without) {
			return fmt.Errorf("usages did not match %v", want)
		}
		return nil
	}
}

func clientUsages(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	for _, usage := range usages {
		if !slices.Contains(allowed, usage) {
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
