package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/resource/resourcetest"
)

// signedKey returns the public key of a private one, in the form of PKIX, and the signature of
// the UID "a".
func signedKey(t *testing.T, key crypto.Signer) (der, proof []byte) {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	var options crypto.SignerOpts = crypto.SHA256
	hash := sha256.Sum256([]byte("a"))
	signed := hash[:]
	switch key.(type) {
	case *rsa.PrivateKey:
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto, Hash: crypto.SHA256}
	case ed25519.PrivateKey:
		options, signed = crypto.Hash(0), []byte("a")
	}
	if proof, err = key.Sign(rand.Reader, signed, options); err != nil {
		t.Fatal(err)
	}
	return der, proof
}

// requestWith returns a request of v1beta1 for the pod with a UID.
func requestWith(stub, key, proof []byte, uid types.UID) *certificatesv1beta1.PodCertificateRequest {
	r := &certificatesv1beta1.PodCertificateRequest{}
	r.Name, r.Namespace, r.Annotations = "req-1", "default", map[string]string{"example.com/a": "b"}
	r.Spec = certificatesv1beta1.PodCertificateRequestSpec{
		SignerName: "example.com/pods", PodName: "web-0", PodUID: uid, ServiceAccountName: "default", ServiceAccountUID: "b", NodeName: "node-1", NodeUID: "c",
		StubPKCS10Request: stub, PKIXPublicKey: key, ProofOfPossession: proof,
	}
	return r
}

// toHub returns a request of v1beta1 in v1, with defaults.
func toHub(t *testing.T, in *certificatesv1beta1.PodCertificateRequest) *certificatesv1.PodCertificateRequest {
	t.Helper()
	hub := &certificatesv1.PodCertificateRequest{}
	if err := podRequestFromV1beta1(in, hub); err != nil {
		t.Fatal(err)
	}
	podCertificateRequests.Default(hub)
	return hub
}

// Requests of v1beta1 may have a public key, which those of v1 have no field for.
func TestARequestWithAPublicKey(t *testing.T) {
	der, proof := signedKey(t, newKey(t))
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, weakProof := signedKey(t, p224)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	const either = `spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set`
	for _, tc := range []struct {
		name             string
		stub, key, proof []byte
		uid              types.UID
		want             []string
	}{
		{"a key and a signature", nil, der, proof, "a", nil},
		{"a PKCS#10 request", stub, nil, nil, "a", nil},
		{"the signature of another UID", nil, der, proof, "b", []string{`spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature`}},
		{"a key of another curve", nil, weak, weakProof, "a", []string{`spec.pkixPublicKey: Invalid value: elliptic public keys must use curve P256, P384, or P521`}},
		{"what is no key", nil, []byte("x"), proof, "a", []string{`spec.pkixPublicKey: Invalid value: must be a valid PKIX-serialized public key`}},
		{"a key that is too long", nil, bytes.Repeat([]byte("x"), maxKey+1), proof, "a", []string{`spec.pkixPublicKey: Too long: may not be more than 10240 bytes`}},
		{"a key without a signature", nil, der, nil, "a", []string{either}},
		{"both", stub, der, proof, "a", []string{either}},
		{"neither", nil, nil, nil, "a", []string{either}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resourcetest.Errors(t, validatePodRequestV1beta1(toHub(t, requestWith(tc.stub, tc.key, tc.proof, tc.uid)), nil), tc.want...)
		})
	}
}

func TestKindsOfPublicKeys(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{ed, long, newKey(t)} {
		der, proof := signedKey(t, key)
		resourcetest.Errors(t, validateKey(der, proof, []byte("a")))
		resourcetest.Errors(t, validateKey(der, proof, []byte("b")), `spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature`)
	}
}

// The values are annotations in v1, which do not change, and which new requests of v1 may not have.
func TestWhatV1HasNoFieldsFor(t *testing.T) {
	der, proof := signedKey(t, newKey(t))
	hub := toHub(t, requestWith(nil, der, proof, "a"))
	if len(hub.Annotations) != 3 {
		t.Errorf("annotations of v1: %v", hub.Annotations)
	}
	resourcetest.Errors(t, podCertificateRequests.ValidateCreate(hub), `spec.stubPKCS10Request: Required value`,
		`metadata.annotations[certificates.k8s.io/v1beta1-pkix-public-key]: Forbidden: has a value of requests of v1beta1; create the request in v1beta1, or leave the annotation out`,
		`metadata.annotations[certificates.k8s.io/v1beta1-proof-of-possession]: Forbidden: has a value of requests of v1beta1; create the request in v1beta1, or leave the annotation out`)
	changed := hub.DeepCopy()
	changed.Annotations = map[string]string{keyAnnotation: "eA==", "example.com/c": "d"}
	podCertificateRequests.PrepareUpdate(t.Context(), nil, changed, hub)
	resourcetest.Errors(t, podCertificateRequests.ValidateUpdate(changed, hub))
	back := &certificatesv1beta1.PodCertificateRequest{}
	if err := podRequestToV1beta1(changed, back); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.Spec.PKIXPublicKey, der) || !bytes.Equal(back.Spec.ProofOfPossession, proof) || len(back.Annotations) != 1 || back.Annotations["example.com/c"] != "d" {
		t.Errorf("v1beta1 has the annotations %v, the key %x", back.Annotations, back.Spec.PKIXPublicKey)
	}
	if len(hub.Annotations) != 3 || len(changed.Annotations) != 3 {
		t.Error("the conversion changed the annotations of v1")
	}
}

// A certificate is for the public key.
func TestACertificateForAPublicKey(t *testing.T) {
	key := newKey(t)
	der, proof := signedKey(t, key)
	public, errs := requestedKey(toHub(t, requestWith(nil, der, proof, "a")))
	if len(errs) > 0 || !key.PublicKey.Equal(public) {
		t.Errorf("the requested key: %v, %v", public, errs)
	}
	_, errs = requestedKey(&certificatesv1.PodCertificateRequest{})
	resourcetest.Errors(t, errs, `spec.pkixPublicKey: Invalid value: must be a valid PKIX-serialized public key`)
}
