package clustertrustbundlepublisher

import (
	"crypto/sha256"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// action is what to do with the bundles of the signer.
type action struct {
	// bundle is the one for the certificates; create reports whether it is new.
	bundle *bundle
	create bool
	// stale are those of earlier certificates.
	stale []*bundle
}

// decide returns what to do with the bundles that exist. The name of a bundle is that of
// kube-controller-manager, so that one can take over from the other: pods that select by
// the signer have either the old or the new certificates at any time.
func decide(existing []*bundle, rootCA string) action {
	hash := sha256.Sum256([]byte(rootCA))
	wanted := fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), hash[:12])
	next := action{create: true, bundle: &bundle{
		ObjectMeta: metav1.ObjectMeta{Name: wanted},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: rootCA},
	}}
	for _, b := range existing {
		switch {
		case b.Spec.SignerName != signer:
		case b.Name == wanted:
			next.create, next.bundle = false, b
		default:
			next.stale = append(next.stale, b)
		}
	}
	return next
}
