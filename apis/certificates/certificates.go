// Package certificates declares the kinds of the certificates.k8s.io group.
package certificates

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the certificates.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		certificateSigningRequests,
		clusterTrustBundles,
		podCertificateRequests,
	}
}
