package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// SubjectName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const SubjectName = "CertificateSubjectRestriction"

// RegisterSubject registers the plugin that refuses requests for client certificates
// of the group system:masters, which may do everything.
func RegisterSubject(plugins *admission.Plugins) {
	plugins.Register(SubjectName, func(io.Reader) (admission.Interface, error) {
		return &subject{admission.NewHandler(admission.Create)}, nil
	})
}

type subject struct{ *admission.Handler }

var _ admission.ValidationInterface = &subject{}

// Validate implements admission.ValidationInterface.
func (p *subject) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok || a.GetSubresource() != "" || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := Parse(csr.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup))
	}
	return nil
}

// Parse returns the request of a CertificateSigningRequest, in PEM. Its signature is not
// checked.
func Parse(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
