package csrapproving

import (
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"

	"svc.dev/svc/controllers/certificates/internal/request"
)

// permission is a way to be approved: the requester must be allowed to create the
// subresource of certificatesigningrequests.
type permission struct {
	subresource, message string
}

// permissions returns the ways in which a request can be approved, in the order in
// which they are tried. There is none unless it is for the client certificate of a
// node.
func permissions(csr *certificatesv1.CertificateSigningRequest, r *x509.CertificateRequest) []permission {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName ||
		request.Check(csr.Spec.SignerName, r, csr.Spec.Usages) != nil {
		return nil
	}
	ways := []permission{{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."}}
	if csr.Spec.Username == r.Subject.CommonName {
		ways = append([]permission{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."}}, ways...)
	}
	return ways
}
