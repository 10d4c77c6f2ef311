package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource/resourcetest"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pkcs10 is a certificate request in PEM.
func pkcs10(t *testing.T) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// certificate is a certificate in PEM that signs itself.
func certificate(t *testing.T, ca bool) []byte {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0), IsCA: ca, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestCertificateSigningRequest(t *testing.T) {
	const times = `lastUpdateTime: "2026-01-02T03:04:05Z", lastTransitionTime: "2026-01-02T03:04:05Z"`
	const approved = `{type: Approved, status: "True", ` + times + `}`
	const denied = `{type: Denied, status: "True", ` + times + `}`
	issued, other := encode(certificate(t, false)), encode(certificate(t, false))
	garbage := encode([]byte("garbage"))
	resourcetest.Rules(t, certificateSigningRequests, `
metadata: {name: "csr:jane"}
spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: `+encode(pkcs10(t))+`}
`, []resourcetest.Rule{
		{Name: "a request is accepted"},
		{Name: "the request is PEM", Change: `spec: {request: ` + garbage + `}`,
			Want: []string{`spec.request: Invalid value: "Z2FyYmFnZQ==": PEM block type must be CERTIFICATE REQUEST`}},
		{Name: "usages are required", Change: `spec: {usages: []}`, Want: []string{`spec.usages: Required value`}},
		{Name: "usages are known and unique", Change: `spec: {usages: [any, any, fun]}`, Want: []string{
			`spec.usages[1]: Duplicate value: "any"`,
			`spec.usages[2]: Unsupported value: "fun": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"`}},
		{Name: "a signer is required", Change: `spec: {signerName: ""}`, Want: []string{`spec.signerName: Required value`}},
		{Name: "a signer has a domain and a path", Change: `spec: {signerName: example.com}`,
			Want: []string{`spec.signerName: Invalid value: "example.com": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
		{Name: "a signer's domain has a dot", Change: `spec: {signerName: example/x}`,
			Want: []string{`spec.signerName: Invalid value: "example": should be a domain with at least two segments separated by dots`}},
		{Name: "the legacy signer is refused", Change: `spec: {signerName: kubernetes.io/legacy-unknown}`,
			Want: []string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`}},
		{Name: "a life is at least ten minutes", Change: `spec: {expirationSeconds: 599}`,
			Want: []string{`spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)`}},
		{Name: "updates of the spec are ignored", Update: true, Change: `spec: {signerName: x, usages: []}`},

		{Name: "approval approves", View: "approval", Change: `status: {conditions: [` + approved + `]}`},
		{Name: "approval does not issue", View: "approval", Change: `status: {conditions: [` + approved + `], certificate: ` + issued + `}`},
		{Name: "approved and denied exclude each other", View: "approval", Change: `status: {conditions: [` + approved + `, ` + denied + `]}`,
			Want: []string{`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`}},
		{Name: "a verdict is true", View: "approval", Change: `status: {conditions: [{type: Approved, status: "False"}]}`,
			Want: []string{`status.conditions[0].status: Unsupported value: "False": supported values: "True"`}},
		{Name: "a verdict stays", View: "approval", Was: `status: {conditions: [` + approved + `]}`,
			Want: []string{`status.conditions: Forbidden: updates may not remove a condition of type "Approved"`}},
		{Name: "conditions have a type and a status", View: "approval", Change: `status: {conditions: [{}]}`,
			Want: []string{`status.conditions[0].type: Required value`, `status.conditions[0].status: Required value`}},

		{Name: "a signer issues", Status: true, Was: `status: {conditions: [` + approved + `]}`, Change: `status: {conditions: [` + approved + `], certificate: ` + issued + `}`},
		{Name: "a signer may fail", Status: true, Change: `status: {conditions: [{type: Failed, status: "True"}]}`},
		{Name: "a signer does not approve", Status: true, Change: `status: {conditions: [` + approved + `]}`,
			Want: []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`}},
		{Name: "a signer's changes of the verdict are ignored", Status: true, Was: `status: {conditions: [` + approved + `]}`, Change: `status: {conditions: [{type: Approved, status: "False"}]}`},
		{Name: "a certificate stays", Status: true, Was: `status: {certificate: ` + issued + `}`, Change: `status: {certificate: ` + other + `}`,
			Want: []string{`status.certificate: Forbidden: updates may not modify existing certificate content`}},
		{Name: "a certificate is PEM", Status: true, Change: `status: {certificate: ` + garbage + `}`,
			Want: []string{`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`}},
	})
}

func TestRequestsCarryTheirUser(t *testing.T) {
	claimed := certificatesv1.CertificateSigningRequestSpec{Username: "admin", UID: "1", Groups: []string{"system:masters"},
		Extra: map[string]certificatesv1.ExtraValue{"a": {"b"}}}
	jane := &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"readers"}, Extra: map[string][]string{"k": {"v"}}}

	r := &certificatesv1.CertificateSigningRequest{Spec: claimed}
	signWithUser(request.WithUser(t.Context(), jane), nil, r)
	if diff := cmp.Diff(certificatesv1.CertificateSigningRequestSpec{Username: "jane", UID: "7", Groups: []string{"readers"},
		Extra: map[string]certificatesv1.ExtraValue{"k": {"v"}}}, r.Spec); diff != "" {
		t.Errorf("with a user (-want +got):\n%s", diff)
	}

	r = &certificatesv1.CertificateSigningRequest{Spec: claimed}
	signWithUser(t.Context(), nil, r)
	if diff := cmp.Diff(certificatesv1.CertificateSigningRequestSpec{}, r.Spec); diff != "" {
		t.Errorf("without a user (-want +got):\n%s", diff)
	}
}

func TestConditionsGetTheirTimes(t *testing.T) {
	before := metav1.NewTime(time.Unix(1000, 0))
	old := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: "A", Status: "True", LastUpdateTime: before, LastTransitionTime: before}},
	}}
	r := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "True"}},
	}}
	stampConditions(r, old, metav1.NewTime(resourcetest.Now))
	if c := r.Status.Conditions[0]; !c.LastTransitionTime.Equal(&before) || !c.LastUpdateTime.Time.Equal(resourcetest.Now) {
		t.Errorf("a condition whose status stays: %v", c)
	}
	if c := r.Status.Conditions[1]; !c.LastTransitionTime.Time.Equal(resourcetest.Now) || !c.LastUpdateTime.Time.Equal(resourcetest.Now) {
		t.Errorf("a new condition: %v", c)
	}
}

func TestConditionCell(t *testing.T) {
	for want, r := range map[string]certificatesv1.CertificateSigningRequestStatus{
		"Pending":         {},
		"Approved":        {Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}},
		"Approved,Issued": {Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}, Certificate: []byte("x")},
		"Denied,Failed":   {Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}, {Type: certificatesv1.CertificateDenied}}},
	} {
		if got := conditionCell(&certificatesv1.CertificateSigningRequest{Status: r}); got != want {
			t.Errorf("condition %v, want %s", got, want)
		}
	}
}

func TestThePrefixOfABundlesNameIsThatOfItsSigner(t *testing.T) {
	for name, want := range map[string][]string{
		"example.com:ca:v-": nil,
		"roots-":            {`metadata.generateName: Invalid value: "roots-": ClusterTrustBundle for signerName example.com/ca must be named with prefix example.com:ca:`},
	} {
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{GenerateName: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/ca", TrustBundle: string(certificate(t, true))}}
		resourcetest.Errors(t, validateBundle(b), want...)
	}
}

func TestClusterTrustBundle(t *testing.T) {
	anchor, leaf := string(certificate(t, true)), string(certificate(t, false))
	for _, test := range []struct {
		rule, name, signer, bundle string
		want                       []string
	}{
		{"a bundle of no signer is accepted", "roots", "", anchor, nil},
		{"a bundle of a signer is accepted", "example.com:ca:v1", "example.com/ca", anchor, nil},
		{"a signer's bundle is named after it", "roots", "example.com/ca", anchor, []string{
			`metadata.name: Invalid value: "roots": ClusterTrustBundle for signerName example.com/ca must be named with prefix example.com:ca:`}},
		{"others are not named so", "example.com:ca:v1", "", anchor, []string{
			`metadata.name: Invalid value: "example.com:ca:v1": ClusterTrustBundle without signer name must not have ":" in its name`}},
		{"an anchor is required", "roots", "", "text", []string{`spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided`}},
		{"an anchor is an authority", "roots", "", anchor + leaf, []string{`spec.trustBundle: Invalid value: "<value omitted>": entry 1 does not have the CA bit set`}},
		{"anchors are unique", "roots", "", anchor + anchor, []string{`spec.trustBundle: Invalid value: "<value omitted>": duplicate trust anchor (indices [0 1])`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: test.name},
				Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: test.signer, TrustBundle: test.bundle}}
			resourcetest.Errors(t, validateBundle(b), test.want...)
		})
	}
}
