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
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis/resource/resourcetest"
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

func TestV1beta1AllowsWhatV1RefusesInRequests(t *testing.T) {
	kind := certificateSigningRequests.Kind()
	const twice, untyped = `conditions: [{type: A, status: "True"}, {type: A, status: "False"}]`, `conditions: [{status: "True"}]`
	const verdicts = `conditions: [{type: Approved, status: "True"}, {type: Denied, status: "True"}]`
	garbage, issued := encode([]byte("garbage")), encode(certificate(t, false))
	newRequest := func(change string) runtime.Object {
		return resourcetest.Object(t, kind, `
metadata: {name: a}
spec: {signerName: kubernetes.io/legacy-unknown, usages: [fun, any, any], request: `+encode(pkcs10(t))+`}
`, change)
	}
	resourcetest.Errors(t, validateRequestV1beta1(newRequest(`{}`), nil))
	resourcetest.Errors(t, validateRequestV1beta1(newRequest(`spec: {usages: []}`), nil), "spec.usages: Required value")

	for _, test := range []struct {
		rule, was, is string
		approval      bool     // an update of the approval, not of the status
		want, wantV1  []string // the errors in v1beta1 and in v1
	}{
		{rule: "the same type twice", is: twice, wantV1: []string{`status.conditions[1].type: Duplicate value: "A"`}},
		{rule: "the same type twice as it was", was: twice, is: twice},
		{rule: "no type", is: untyped, wantV1: []string{"status.conditions[0].type: Required value"}},
		{rule: "no type as it was", was: untyped, is: untyped},
		{rule: "any certificate", is: "certificate: " + garbage,
			wantV1: []string{`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`}},
		{rule: "another certificate", was: "certificate: " + garbage, is: "certificate: " + issued,
			wantV1: []string{"status.certificate: Forbidden: updates may not modify existing certificate content"}},
		{rule: "the certificate stays", was: "certificate: " + garbage, is: "certificate: " + garbage},
		{rule: "a status is required", is: "conditions: [{type: A}]",
			want: []string{"status.conditions[0].status: Required value"}, wantV1: []string{"status.conditions[0].status: Required value"}},
		{rule: "a signer does not approve", is: `conditions: [{type: Approved, status: "True"}]`,
			want:   []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`},
			wantV1: []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`}},
		{rule: "both verdicts", is: verdicts, approval: true,
			want:   []string{`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
			wantV1: []string{`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`}},
		{rule: "both verdicts as they were", was: verdicts, is: verdicts, approval: true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			obj, old := newRequest("status: {"+test.is+"}"), newRequest("status: {"+test.was+"}")
			view, v1 := "status", kind.ValidateStatus
			if test.approval {
				view, v1 = kind.Views[0].Name, kind.Views[0].Validate
			}
			resourcetest.Errors(t, validateViewV1beta1(view, obj, old), test.want...)
			resourcetest.Errors(t, v1(obj, old), test.wantV1...)
		})
	}
}
