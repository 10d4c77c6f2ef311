package certificates

import (
	"context"
	"fmt"
	"io"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/escalation"
)

// AttestName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const AttestName = "ClusterTrustBundleAttest"

// RegisterAttest registers the plugin that requires the verb attest on the signer for
// ClusterTrustBundles that name one.
func RegisterAttest(plugins *admission.Plugins) {
	plugins.Register(AttestName, func(io.Reader) (admission.Interface, error) {
		return &attest{plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}}, nil
	})
}

type attest struct{ plugin }

var _ admission.ValidationInterface = &attest{}

// Validate implements admission.ValidationInterface. An update that leaves the bundle as it is,
// or is the garbage collector's, needs no permission. One of labels alone does: by their labels,
// pods choose the bundles that they trust.
func (p *attest) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	signers := []string{bundle.Spec.SignerName}
	if old, updated := a.GetOldObject().(*certificatesv1.ClusterTrustBundle); updated {
		if escalation.OnlyGarbageCollection(bundle, old) {
			return nil
		}
		// An update may not choose another signer; its validation comes later.
		signers = append(signers, old.Spec.SignerName)
	}
	for _, signer := range signers {
		if signer != "" && !mayOnSigner(ctx, p.authorizer, a.GetUserInfo(), "attest", signer) {
			return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
		}
	}
	return nil
}
