package volume

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// trustAnchors returns the file that a source shows, from the bundles that it selects: each
// certificate once, in PEM without headers and without text between the blocks (KEP-3257).
// Their order, on which nothing may depend, is that of hashes with the salt, so that it
// differs between pods and stays when certificates are added or removed. Without bundles
// the file is empty if the source is optional; otherwise that is an error.
func trustAnchors(source *corev1.ClusterTrustBundleProjection, bundles []*certificatesv1.ClusterTrustBundle, salt string) ([]byte, error) {
	if len(bundles) == 0 && !isTrue(source.Optional) {
		if source.Name != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundle"), *source.Name))
		}
		return nil, fmt.Errorf("combination of signerName and labelSelector matched zero ClusterTrustBundles: signerName is %q", ptr.Deref(source.SignerName, ""))
	}
	anchors := map[string][]byte{} // certificates in DER, by hash
	for _, bundle := range bundles {
		for block, rest := pem.Decode([]byte(bundle.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			hash := sha256.Sum256(append([]byte(salt), block.Bytes...))
			anchors[string(hash[:])] = block.Bytes
		}
	}
	file := []byte{}
	for _, hash := range slices.Sorted(maps.Keys(anchors)) {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: anchors[hash]})...)
	}
	return file, nil
}
