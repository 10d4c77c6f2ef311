package request

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	client   = certificatesv1.UsageClientAuth
	serving  = certificatesv1.UsageServerAuth
	digital  = certificatesv1.UsageDigitalSignature
	encipher = certificatesv1.UsageKeyEncipherment
)

func TestWhatTheSignersSign(t *testing.T) {
	node := pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}
	ip := []net.IP{net.IPv4(10, 0, 0, 1)}
	type usages = []certificatesv1.KeyUsage
	const user, kubelet, server = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
	for _, test := range []struct {
		rule, signer string
		request      x509.CertificateRequest
		usages       usages
		want         string // "" is no error
	}{
		{"a user's certificate", user, x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}, usages{client}, ""},
		{"a user's certificate with all its usages", user, x509.CertificateRequest{}, usages{client, digital, encipher}, ""},
		{"a user's certificate must be for clients", user, x509.CertificateRequest{}, usages{digital}, "missing required usage"},
		{"a user's certificate cannot be for servers", user, x509.CertificateRequest{}, usages{client, serving}, "invalid usage for client certificate: server auth"},
		{"a user's certificate cannot sign others", user, x509.CertificateRequest{}, usages{client, certificatesv1.UsageCertSign}, "invalid usage"},
		{"a node's client certificate", kubelet, x509.CertificateRequest{Subject: node}, usages{digital, client}, ""},
		{"a node's client certificate for an RSA key", kubelet, x509.CertificateRequest{Subject: node}, usages{encipher, digital, client}, ""},
		{"of another group", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:masters"}}}, usages{digital, client}, "not system:nodes"},
		{"of two groups", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes", "system:masters"}}}, usages{digital, client}, "not system:nodes"},
		{"of another user", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: []string{"system:nodes"}}}, usages{digital, client}, "system:node:"},
		{"with a DNS name", kubelet, x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}}, usages{digital, client}, "DNS subjectAltNames"},
		{"with an address", kubelet, x509.CertificateRequest{Subject: node, IPAddresses: ip}, usages{digital, client}, "IP subjectAltNames"},
		{"for servers, too", kubelet, x509.CertificateRequest{Subject: node}, usages{digital, client, serving}, "usages did not match"},
		{"a node's serving certificate", server, x509.CertificateRequest{Subject: node, IPAddresses: ip}, usages{digital, serving}, ""},
		{"without names", server, x509.CertificateRequest{Subject: node}, usages{digital, serving}, "subjectAltName is required"},
		{"with an email address", server, x509.CertificateRequest{Subject: node, IPAddresses: ip, EmailAddresses: []string{"a@b"}}, usages{digital, serving}, "Email"},
		{"with a URI", server, x509.CertificateRequest{Subject: node, IPAddresses: ip, URIs: []*url.URL{{Scheme: "spiffe"}}}, usages{digital, serving}, "URI"},
		{"for clients", server, x509.CertificateRequest{Subject: node, IPAddresses: ip}, usages{digital, client}, "usages did not match"},
		{"of another signer", "example.com/a", x509.CertificateRequest{}, usages{client}, "unknown signer"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := Check(test.signer, &test.request, test.usages)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestARequestIsSignedByItsKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	if parsed, err := Parse(encode("CERTIFICATE REQUEST", der)); err != nil || parsed.Subject.CommonName != "ann" {
		t.Errorf("got %v, %v", parsed, err)
	}
	forged := append([]byte{}, der...)
	forged[len(forged)-1] ^= 1
	for rule, content := range map[string][]byte{
		"a changed signature": encode("CERTIFICATE REQUEST", forged), "another type": encode("CERTIFICATE", der), "no PEM": []byte("x"), "nothing": nil,
	} {
		if _, err := Parse(content); err == nil {
			t.Errorf("%s is accepted", rule)
		}
	}
}
