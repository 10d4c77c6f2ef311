package certificates

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestPodCertificateRequest(t *testing.T) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	resourcetest.Rules(t, podCertificateRequests, `
metadata: {name: req-1, namespace: default}
spec:
  signerName: example.com/pods
  podName: web-0
  podUID: a
  serviceAccountName: default
  serviceAccountUID: b
  nodeName: node-1
  nodeUID: c
  stubPKCS10Request: `+encode(der)+`
`, []resourcetest.Rule{
		{Name: "a request is accepted"},
		{Name: "UIDs are required", Change: `spec: {podUID: "", nodeUID: "", serviceAccountUID: ""}`, Want: []string{
			`spec.podUID: Invalid value: "": must not be empty`,
			`spec.nodeUID: Invalid value: "": must not be empty`,
			`spec.serviceAccountUID: Invalid value: "": must not be empty`}},
		{Name: "a life is at most 91 days", Change: `spec: {maxExpirationSeconds: 7862401}`,
			Want: []string{`spec.maxExpirationSeconds: Invalid value: 7862401: must be in the range [3600, 7862400]`}},
		{Name: "a life from Kubernetes is at most a day", Change: `spec: {signerName: kubernetes.io/x, maxExpirationSeconds: 86401}`,
			Want: []string{`spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]`}},
		{Name: "the request is PKCS#10", Change: `spec: {stubPKCS10Request: eA==}`,
			Want: []string{`spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR`}},
		{Name: "users' annotations have domains", Change: `spec: {unverifiedUserAnnotations: {key: value}}`,
			Want: []string{`spec.unverifiedUserAnnotations: Invalid value: "key": must be a domain-prefixed key (such as "acme.io/foo")`}},
	})
}

func TestPodCertificateStatus(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	key := newKey(t)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	condition := func(kind string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: *at(0)}}
	}
	issued := certificatesv1.PodCertificateRequestStatus{
		Conditions:       condition(certificatesv1.PodCertificateRequestConditionTypeIssued),
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        at(0), BeginRefreshAt: at(time.Hour), NotAfter: at(2 * time.Hour),
	}
	denied := certificatesv1.PodCertificateRequestStatus{Conditions: condition(certificatesv1.PodCertificateRequestConditionTypeDenied)}
	with := func(s certificatesv1.PodCertificateRequestStatus, change func(*certificatesv1.PodCertificateRequestStatus)) certificatesv1.PodCertificateRequestStatus {
		change(&s)
		return s
	}
	for _, test := range []struct {
		rule     string
		was, now certificatesv1.PodCertificateRequestStatus
		life     int32
		want     []string
	}{
		{"a certificate is issued", certificatesv1.PodCertificateRequestStatus{}, issued, 7200, nil},
		{"a request is denied", certificatesv1.PodCertificateRequestStatus{}, denied, 7200, nil},
		{"nothing changes", issued, issued, 7200, nil},
		{"a verdict is final", denied, issued, 7200, []string{`status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed`}},
		{"a denial carries no certificate", certificatesv1.PodCertificateRequestStatus{},
			with(issued, func(s *certificatesv1.PodCertificateRequestStatus) { s.Conditions = denied.Conditions }), 7200,
			[]string{`status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest`}},
		{"a certificate lives no longer than asked", certificatesv1.PodCertificateRequestStatus{}, issued, 3600,
			[]string{`status.certificateChain: Invalid value: "2h0m0s": leaf certificate lifetime must be <= spec.maxExpirationSeconds (3600)`}},
		{"times are required", certificatesv1.PodCertificateRequestStatus{},
			with(issued, func(s *certificatesv1.PodCertificateRequestStatus) { s.NotAfter, s.BeginRefreshAt = nil, nil }), 7200, []string{
				`status.notAfter: Required value: must be present and consistent with the issued certificate`,
				`status.beginRefreshAt: Required value: must be present and in the range [notbefore+10min, notafter-10min]`}},
		{"a chain is required", certificatesv1.PodCertificateRequestStatus{},
			with(issued, func(s *certificatesv1.PodCertificateRequestStatus) { s.CertificateChain = "" }), 7200,
			[]string{`status.certificateChain: Invalid value: "": issued certificate chain must contain at least one certificate`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			spec := certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: stub, MaxExpirationSeconds: &test.life}
			r := &certificatesv1.PodCertificateRequest{Spec: spec, Status: test.now}
			old := &certificatesv1.PodCertificateRequest{Spec: spec, Status: test.was}
			resourcetest.Errors(t, validatePodStatus(r, old, now), test.want...)
		})
	}
}
