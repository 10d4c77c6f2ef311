// Package certificates owns the admission plugins of Kubernetes for certificate
// signing requests: CertificateApproval, CertificateSigning and
// CertificateSubjectRestriction, and that for trust bundles, ClusterTrustBundleAttest.
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#authorization
package certificates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// The plugins' names in --enable-admission-plugins and --disable-admission-plugins.
const (
	ApprovalName = "CertificateApproval"
	SigningName  = "CertificateSigning"
)

// RegisterApproval registers the plugin that requires the verb approve on the signer
// for updates of the subresource approval.
func RegisterApproval(plugins *admission.Plugins) {
	register(plugins, ApprovalName, "approve", func(a admission.Attributes, _, _ *certificatesv1.CertificateSigningRequest) bool {
		return a.GetSubresource() == "approval"
	})
}

// RegisterSigning registers the plugin that requires the verb sign on the signer for
// updates of the certificate or the conditions in the status, and of the status of
// PodCertificateRequests.
func RegisterSigning(plugins *admission.Plugins) {
	plugins.Register(SigningName, func(io.Reader) (admission.Interface, error) {
		return &signing{plugin{Handler: admission.NewHandler(admission.Update), verb: "sign", concerned: signed}}, nil
	})
}

// signed reports whether an update changes the certificate or the conditions in the status.
func signed(a admission.Attributes, csr, old *certificatesv1.CertificateSigningRequest) bool {
	return a.GetSubresource() == "status" && (string(csr.Status.Certificate) != string(old.Status.Certificate) ||
		!apiequality.Semantic.DeepEqual(csr.Status.Conditions, old.Status.Conditions))
}

// concerned reports whether an update needs the permission of a plugin.
type concerned func(a admission.Attributes, csr, old *certificatesv1.CertificateSigningRequest) bool

func register(plugins *admission.Plugins, name, verb string, concerned concerned) {
	plugins.Register(name, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Update), verb: verb, concerned: concerned}, nil
	})
}

// plugin requires a permission on the signer of a request.
type plugin struct {
	*admission.Handler
	authorizer authorizer.Authorizer
	verb       string
	concerned  concerned
}

var (
	_ admission.ValidationInterface = &plugin{}
	_ initializer.WantsAuthorizer   = &plugin{}
)

// SetAuthorizer implements initializer.WantsAuthorizer.
func (p *plugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return errors.New("the plugin needs an authorizer")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	csr, isRequest := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	old, wasRequest := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !isRequest || !wasRequest || !p.concerned(a, csr, old) {
		return nil
	}
	// The signer of the old object counts: an update cannot choose another one.
	signer := old.Spec.SignerName
	if mayOnSigner(ctx, p.authorizer, a.GetUserInfo(), p.verb, signer) {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", p.verb, signer))
}

// mayOnSigner reports whether a user may use a verb on a signer, or on all of its domain.
func mayOnSigner(ctx context.Context, may authorizer.Authorizer, who user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := may.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb, Name: name,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
