package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"maps"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// The annotations of v1 for the values of v1beta1 that v1 has no fields for: a public key and
// the signature of the pod's UID, both in base64, which a request of v1beta1 may have instead
// of a PKCS#10 request. They follow from the request, and do not change.
const (
	keyAnnotation   = "certificates.k8s.io/v1beta1-pkix-public-key"
	proofAnnotation = "certificates.k8s.io/v1beta1-proof-of-possession"
)

// maxKey is the greatest size of a public key and of a signature, in bytes.
const maxKey = 10 << 10

func podRequestFromV1beta1(in *certificatesv1beta1.PodCertificateRequest, out *certificatesv1.PodCertificateRequest) error {
	resource.CopyFields(in, out)
	setCarried(out, map[string]string{
		keyAnnotation:   base64.StdEncoding.EncodeToString(in.Spec.PKIXPublicKey),
		proofAnnotation: base64.StdEncoding.EncodeToString(in.Spec.ProofOfPossession),
	})
	return nil
}

func podRequestToV1beta1(in *certificatesv1.PodCertificateRequest, out *certificatesv1beta1.PodCertificateRequest) error {
	copied := *in
	setCarried(&copied, nil)
	resource.CopyFields(&copied, out)
	out.Spec.PKIXPublicKey, out.Spec.ProofOfPossession = carried(in, keyAnnotation), carried(in, proofAnnotation)
	return nil
}

// carried returns the value of an annotation, nil if there is none that is valid.
func carried(r *certificatesv1.PodCertificateRequest, annotation string) []byte {
	value, err := base64.StdEncoding.DecodeString(r.Annotations[annotation])
	if err != nil || len(value) == 0 {
		return nil
	}
	return value
}

// setCarried sets the annotations to those of values that are not empty. The map of the
// annotations is not changed: another object may have it, too.
func setCarried(r *certificatesv1.PodCertificateRequest, values map[string]string) {
	annotations := maps.Clone(r.Annotations)
	for _, annotation := range []string{keyAnnotation, proofAnnotation} {
		delete(annotations, annotation)
		if values[annotation] == "" {
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotation] = values[annotation]
	}
	r.Annotations = annotations
}

// keepCarried gives a changed request the annotations that it had.
func keepCarried(r, old *certificatesv1.PodCertificateRequest) { setCarried(r, old.Annotations) }

// validatePodRequestV1beta1 validates a request of v1beta1, which has either a PKCS#10 request
// or a public key and a signature.
func validatePodRequestV1beta1(obj, old runtime.Object) field.ErrorList {
	r := obj.(*certificatesv1.PodCertificateRequest)
	if old != nil {
		return validatePodUpdate(r, old.(*certificatesv1.PodCertificateRequest))
	}
	errs := validatePodSpec(r)
	key, proof := carried(r, keyAnnotation), carried(r, proofAnnotation)
	switch hasStub := len(r.Spec.StubPKCS10Request) > 0; {
	case hasStub && key == nil && proof == nil:
		return append(errs, validateStub(field.NewPath("spec", "stubPKCS10Request"), r.Spec.StubPKCS10Request)...)
	case !hasStub && key != nil && proof != nil:
		return append(errs, validateKey(key, proof, []byte(r.Spec.PodUID))...)
	}
	return append(errs, field.Invalid(field.NewPath("spec"), field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
}

// validateKey requires a public key of a known kind, and a signature with its private key.
func validateKey(der, proof, signed []byte) field.ErrorList {
	path, proofPath := field.NewPath("spec", "pkixPublicKey"), field.NewPath("spec", "proofOfPossession")
	if len(der) > maxKey {
		return field.ErrorList{field.TooLong(path, "", maxKey)}
	}
	if len(proof) > maxKey {
		return field.ErrorList{field.TooLong(proofPath, "", maxKey)}
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a valid PKIX-serialized public key")}
	}
	if fault := keyFault(public); fault != "" {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fault)}
	}
	if !proves(public, proof, signed) {
		return field.ErrorList{field.Invalid(proofPath, field.OmitValueType{}, "could not verify proof-of-possession signature")}
	}
	return nil
}

// proves reports whether a proof is the signature of what is signed.
func proves(public crypto.PublicKey, proof, signed []byte) bool {
	hash := sha256.Sum256(signed)
	switch key := public.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, signed, proof)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, hash[:], proof)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(key, crypto.SHA256, hash[:], proof, nil) == nil
	}
	return false
}
