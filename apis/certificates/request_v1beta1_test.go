package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
)

func TestTheSignerFollowsFromARequestOfV1beta1(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	node := pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:a"}
	for _, test := range []struct {
		rule    string
		subject pkix.Name
		names   []string
		usage   certificatesv1beta1.KeyUsage
		want    string
	}{
		{"a kubelet's client", node, nil, certificatesv1beta1.UsageClientAuth, certificatesv1.KubeAPIServerClientKubeletSignerName},
		{"a kubelet's server", node, []string{"a"}, certificatesv1beta1.UsageServerAuth, certificatesv1.KubeletServingSignerName},
		{"a client with names", node, []string{"a"}, certificatesv1beta1.UsageClientAuth, legacySigner},
		{"a server without names", node, nil, certificatesv1beta1.UsageServerAuth, legacySigner},
		{"another user", pkix.Name{CommonName: "u"}, nil, certificatesv1beta1.UsageClientAuth, legacySigner},
	} {
		t.Run(test.rule, func(t *testing.T) {
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: test.subject, DNSNames: test.names}, key)
			if err != nil {
				t.Fatal(err)
			}
			request := &certificatesv1beta1.CertificateSigningRequest{Spec: certificatesv1beta1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				Usages:  []certificatesv1beta1.KeyUsage{certificatesv1beta1.UsageDigitalSignature, certificatesv1beta1.UsageKeyEncipherment, test.usage},
			}}
			defaultRequestV1beta1(request)
			if *request.Spec.SignerName != test.want {
				t.Errorf("the signer is %s, want %s", *request.Spec.SignerName, test.want)
			}
			var hub certificatesv1.CertificateSigningRequest
			if err := requestFromV1beta1(request, &hub); err != nil {
				t.Fatal(err)
			}
			if errs := validateRequestV1beta1(&hub, nil); len(errs) > 0 {
				t.Error(errs)
			}
			if errs := validateRequest(&hub); (len(errs) > 0) != (test.want == legacySigner) {
				t.Errorf("errors in v1: %v", errs)
			}
		})
	}
}
