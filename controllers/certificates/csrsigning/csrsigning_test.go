package csrsigning

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// authorityFiles writes the files of an authority that is valid until end.
func authorityFiles(t *testing.T, end time.Time) files {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: now.Add(-time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := files{cert: filepath.Join(dir, "ca.crt"), key: filepath.Join(dir, "ca.key")}
	for name, content := range map[string][]byte{f.cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), f.key: private} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// csr returns a request for a user's certificate that has the conditions.
func csr(t *testing.T, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	made := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "ann"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    requestOf(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: []string{"dev"}}}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
	for _, c := range conditions {
		made.Status.Conditions = append(made.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return made
}

// requestOf returns a request with a new key, in PEM.
func requestOf(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// signed is signedBy with the authority of one signer.
func signed(t *testing.T, request *certificatesv1.CertificateSigningRequest, f files) (*certificatesv1.CertificateSigningRequest, *x509.Certificate) {
	t.Helper()
	return signedBy(t, request, map[string]files{certificatesv1.KubeAPIServerClientSignerName: f})
}

// signedBy reconciles a request, and returns it and its certificate, nil without one.
func signedBy(t *testing.T, request *certificatesv1.CertificateSigningRequest, signers map[string]files) (*certificatesv1.CertificateSigningRequest, *x509.Certificate) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(request).WithStatusSubresource(request).Build()
	r := &reconciler{client: c, now: func() time.Time { return now }, longest: 365 * 24 * time.Hour, signers: signers}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(request)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(request.Status.Certificate)
	if block == nil {
		return request, nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return request, certificate
}

func TestOnlyApprovedRequestsOfTheSignerAreSigned(t *testing.T) {
	f := authorityFiles(t, now.AddDate(10, 0, 0))
	const approved = certificatesv1.CertificateApproved
	for _, test := range []struct {
		rule       string
		conditions []certificatesv1.RequestConditionType
		signer     string
		want       bool
	}{
		{"an approved request is signed", []certificatesv1.RequestConditionType{approved}, certificatesv1.KubeAPIServerClientSignerName, true},
		{"a pending one is not", nil, certificatesv1.KubeAPIServerClientSignerName, false},
		{"a denied one is not", []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, certificatesv1.KubeAPIServerClientSignerName, false},
		{"a failed one is not", []certificatesv1.RequestConditionType{approved, certificatesv1.CertificateFailed}, certificatesv1.KubeAPIServerClientSignerName, false},
		{"one of another signer is not", []certificatesv1.RequestConditionType{approved}, "example.com/own", false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			request := csr(t, test.conditions...)
			request.Spec.SignerName = test.signer
			_, certificate := signed(t, request, f)
			if (certificate != nil) != test.want {
				t.Fatalf("the certificate is %v", certificate)
			}
			if certificate != nil && (certificate.Subject.CommonName != "ann" || certificate.IsCA || len(certificate.ExtKeyUsage) != 1 || certificate.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth) {
				t.Errorf("the certificate is %+v", certificate)
			}
		})
	}
}

// TestEachSignerHasAnAuthorityOfItsOwn names an authority for each signer by its flags, and
// one for all that signs nothing then.
func TestEachSignerHasAnAuthorityOfItsOwn(t *testing.T) {
	o := newOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(fs)
	set := func(flag string) files {
		t.Helper()
		f := authorityFiles(t, now.AddDate(10, 0, 0))
		for name, value := range map[string]string{flag + "-cert-file": f.cert, flag + "-key-file": f.key} {
			if err := fs.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	set("cluster-signing")
	flags := map[string]string{
		certificatesv1.KubeAPIServerClientSignerName:        "cluster-signing-kube-apiserver-client",
		certificatesv1.KubeAPIServerClientKubeletSignerName: "cluster-signing-kubelet-client",
		certificatesv1.KubeletServingSignerName:             "cluster-signing-kubelet-serving",
		legacySigner:                                        "cluster-signing-legacy-unknown",
	}
	authorities := map[string]files{}
	for signer, flag := range flags {
		authorities[signer] = set(flag)
	}
	if errs := o.validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	node := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	for signer := range flags {
		request := csr(t, certificatesv1.CertificateApproved)
		request.Spec.SignerName = signer
		switch signer {
		case certificatesv1.KubeAPIServerClientKubeletSignerName:
			request.Spec.Request = requestOf(t, &x509.CertificateRequest{Subject: node})
			request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		case certificatesv1.KubeletServingSignerName:
			request.Spec.Request = requestOf(t, &x509.CertificateRequest{Subject: node, DNSNames: []string{"n1"}})
			request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
		}
		answer, certificate := signedBy(t, request, o.picked())
		if certificate == nil {
			t.Fatalf("%s: %+v", signer, answer.Status.Conditions)
		}
		for of, f := range authorities {
			own, err := readAuthority(f.cert, f.key)
			if err != nil {
				t.Fatal(err)
			}
			if err := certificate.CheckSignatureFrom(own.cert); (err == nil) != (of == signer) {
				t.Errorf("%s, by the authority of %s: %v", signer, of, err)
			}
		}
	}
}

// TestEveryUsageOfALegacyRequestIsSigned: a request whose usages the signer does not know
// would be tried again without end.
func TestEveryUsageOfALegacyRequestIsSigned(t *testing.T) {
	request := csr(t, certificatesv1.CertificateApproved)
	request.Spec.SignerName = legacySigner
	request.Spec.Usages = []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
		certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
		certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
		certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	}
	request, certificate := signedBy(t, request, map[string]files{legacySigner: authorityFiles(t, now.AddDate(10, 0, 0))})
	switch {
	case certificate == nil:
		t.Fatalf("it is not signed: %+v", request.Status.Conditions)
	case certificate.KeyUsage != 1<<9-1 || len(certificate.ExtKeyUsage) != 12 || certificate.IsCA:
		t.Errorf("the certificate has the usages %b and %v, and is of an authority: %t", certificate.KeyUsage, certificate.ExtKeyUsage, certificate.IsCA)
	}
}

func TestARequestThatBreaksARuleOfItsSignerFails(t *testing.T) {
	request := csr(t, certificatesv1.CertificateApproved)
	request.Spec.Usages = append(request.Spec.Usages, certificatesv1.UsageCertSign)
	request, certificate := signed(t, request, authorityFiles(t, now.AddDate(10, 0, 0)))
	last := request.Status.Conditions[len(request.Status.Conditions)-1]
	if certificate != nil || last.Type != certificatesv1.CertificateFailed || last.Reason != "SignerValidationFailure" || last.Message != "invalid usage for client certificate: cert sign" {
		t.Errorf("got %+v", last)
	}
}

func TestHowLongACertificateIsValid(t *testing.T) {
	for _, test := range []struct {
		rule      string
		requested *int32
		authority time.Duration
		want      time.Duration
	}{
		{"as long as the flag says, from the backdated begin", nil, 10 * 365 * 24 * time.Hour, 365*24*time.Hour - backdate},
		{"as long as the request asks for, if that is short", ptr.To(int32(3600)), 10 * 365 * 24 * time.Hour, time.Hour},
		{"ten minutes at least", ptr.To(int32(1)), 10 * 365 * 24 * time.Hour, 10 * time.Minute},
		{"not longer than the flag says", ptr.To(int32(1 << 30)), 10 * 365 * 24 * time.Hour, 365*24*time.Hour - backdate},
		{"not longer than the authority", nil, 30 * time.Minute, 30 * time.Minute},
	} {
		t.Run(test.rule, func(t *testing.T) {
			request := csr(t, certificatesv1.CertificateApproved)
			request.Spec.ExpirationSeconds = test.requested
			_, certificate := signed(t, request, authorityFiles(t, now.Add(test.authority)))
			if got := certificate.NotAfter.Sub(now); got != test.want || certificate.NotBefore != now.Add(-backdate) {
				t.Errorf("from %s for %s, want %s", certificate.NotBefore, got, test.want)
			}
		})
	}
}

func TestAnInvalidAuthorityNamesItsFlag(t *testing.T) {
	good, other := authorityFiles(t, now.AddDate(1, 0, 0)), authorityFiles(t, now.AddDate(1, 0, 0))
	for rule, test := range map[string]struct {
		change func(*options)
		want   string
	}{
		"a key without a certificate": {func(o *options) { o.all.key = good.key }, "--cluster-signing-cert-file and --cluster-signing-key-file: set both"},
		"the key of another":          {func(o *options) { o.all = files{cert: good.cert, key: other.key} }, "is not the key of"},
		"a file that is missing":      {func(o *options) { o.all = files{cert: "/nowhere", key: good.key} }, "--cluster-signing-cert-file, --cluster-signing-key-file: open /nowhere"},
		"a file of another kind": {func(o *options) {
			o.own = []files{{flag: "cluster-signing-kubelet-client", cert: good.key, key: good.key}}
		}, "--cluster-signing-kubelet-client-cert-file"},
		"a lifetime that is too short":  {func(o *options) { o.duration = time.Minute }, "--cluster-signing-duration: 1m0s must be at least 10m0s"},
		"a certificate without its key": {func(o *options) { o.own = []files{{flag: "cluster-signing-kubelet-client", cert: good.cert}} }, "--cluster-signing-kubelet-client-key-file: set both"},
	} {
		o := &options{duration: time.Hour}
		test.change(o)
		if errs := o.validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
			t.Errorf("%s: %v, want %s", rule, errs, test.want)
		}
	}
}
