package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func requestFromV1beta1(in *certificatesv1beta1.CertificateSigningRequest, out *certificatesv1.CertificateSigningRequest) error {
	resource.CopyFields(in, out)
	if in.Spec.SignerName != nil {
		out.Spec.SignerName = *in.Spec.SignerName
	}
	return nil
}

func requestToV1beta1(in *certificatesv1.CertificateSigningRequest, out *certificatesv1beta1.CertificateSigningRequest) error {
	resource.CopyFields(in, out)
	out.Spec.SignerName = &in.Spec.SignerName
	return nil
}

// defaultRequestV1beta1 fills in what v1 requires (document 2, section 9). The signer
// follows from the request.
func defaultRequestV1beta1(obj runtime.Object) {
	r := obj.(*certificatesv1beta1.CertificateSigningRequest)
	if r.Spec.Usages == nil {
		r.Spec.Usages = []certificatesv1beta1.KeyUsage{certificatesv1beta1.UsageDigitalSignature, certificatesv1beta1.UsageKeyEncipherment}
	}
	if r.Spec.SignerName == nil {
		signer := signerOf(r.Spec)
		r.Spec.SignerName = &signer
	}
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Status == "" {
			r.Status.Conditions[i].Status = corev1.ConditionTrue
		}
	}
}

// signerOf returns the signer of the certificates of kubelets for requests as kubelets
// make them, and legacySigner for others.
func signerOf(spec certificatesv1beta1.CertificateSigningRequestSpec) string {
	block, _ := pem.Decode(spec.Request)
	if block == nil {
		return legacySigner
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || !slices.Equal(csr.Subject.Organization, []string{"system:nodes"}) || !strings.HasPrefix(csr.Subject.CommonName, "system:node:") ||
		len(csr.EmailAddresses) > 0 || len(csr.URIs) > 0 {
		return legacySigner
	}
	named := len(csr.DNSNames) > 0 || len(csr.IPAddresses) > 0
	switch {
	case !named && usesOnly(spec.Usages, certificatesv1beta1.UsageClientAuth):
		return certificatesv1.KubeAPIServerClientKubeletSignerName
	case named && usesOnly(spec.Usages, certificatesv1beta1.UsageServerAuth):
		return certificatesv1.KubeletServingSignerName
	}
	return legacySigner
}

// usesOnly reports whether usages are those of a kubelet's certificate for this purpose;
// keys other than RSA are not used for encipherment.
func usesOnly(usages []certificatesv1beta1.KeyUsage, purpose certificatesv1beta1.KeyUsage) bool {
	has := map[certificatesv1beta1.KeyUsage]bool{}
	for _, u := range usages {
		has[u] = true
	}
	delete(has, certificatesv1beta1.UsageKeyEncipherment)
	return len(has) == 2 && has[certificatesv1beta1.UsageDigitalSignature] && has[purpose]
}

// validateRequestV1beta1 allows the legacy signer, and any usages.
func validateRequestV1beta1(obj, old runtime.Object) field.ErrorList {
	if old != nil {
		return nil
	}
	return validateAnyRequest(obj.(*certificatesv1.CertificateSigningRequest))
}

// validateViewV1beta1 validates updates of the status and of the approval. Conditions may
// have any type, also the same twice, and the certificate may be anything and change
// (document 2, section 9).
func validateViewV1beta1(view string, obj, old runtime.Object) field.ErrorList {
	r, was := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	l := asStored(was)
	l.sameTypes, l.emptyTypes, l.anyCertificate = true, true, true
	errs := validateStatus(r, was, l)
	if view == "status" {
		errs = append(errs, validateNoApproval(r, was)...)
	}
	return errs
}
