package certificates

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// signing is the plugin CertificateSigning.
type signing struct{ plugin }

var _ admission.ValidationInterface = &signing{}

// Validate implements admission.ValidationInterface. For the status of a
// PodCertificateRequest, which kube-apiserver's storage checks, the error is the
// storage's.
func (p *signing) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	request, isRequest := a.GetObject().(*certificatesv1.PodCertificateRequest)
	old, wasRequest := a.GetOldObject().(*certificatesv1.PodCertificateRequest)
	if !isRequest || !wasRequest {
		return p.plugin.Validate(ctx, a, o)
	}
	signer := old.Spec.SignerName
	if a.GetSubresource() != "status" || apiequality.Semantic.DeepEqual(request.Status, old.Status) || mayOnSigner(ctx, p.authorizer, a.GetUserInfo(), p.verb, signer) {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{
		field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", a.GetUserInfo().GetName(), signer)),
	})
}
