package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func request(signer string, change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	csr.Spec.SignerName = signer
	for _, do := range change {
		do(csr)
	}
	return csr
}

func issued(csr *certificatesv1.CertificateSigningRequest) { csr.Status.Certificate = []byte("x") }

func failed(csr *certificatesv1.CertificateSigningRequest) {
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue}}
}

// only allows a verb on a signer.
func only(verb, signer string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == verb && a.GetName() == signer && a.GetResource() == "signers" && a.GetAPIGroup() == "certificates.k8s.io" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

func TestUpdatesNeedAPermissionOnTheSigner(t *testing.T) {
	const (
		approve = `certificatesigningrequests.certificates.k8s.io "x" is forbidden: user not permitted to approve requests with signerName "example.com/a"`
		sign    = `certificatesigningrequests.certificates.k8s.io "x" is forbidden: user not permitted to sign requests with signerName "example.com/a"`
	)
	for _, test := range []struct {
		rule        string
		register    func(*admission.Plugins)
		may         authorizer.Authorizer
		subresource string
		change      func(*certificatesv1.CertificateSigningRequest)
		err         string
	}{
		{"an approver of the signer", RegisterApproval, only("approve", "example.com/a"), "approval", failed, ""},
		{"an approver of the domain", RegisterApproval, only("approve", "example.com/*"), "approval", failed, ""},
		{"an approver of another signer", RegisterApproval, only("approve", "example.com/b"), "approval", failed, approve},
		{"a signer does not approve", RegisterApproval, only("sign", "example.com/a"), "approval", failed, approve},
		{"an update to another signer", RegisterApproval, only("approve", "example.com/b"), "approval",
			func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.SignerName = "example.com/b" }, approve},
		{"the status is not for approvers", RegisterApproval, only("", ""), "status", issued, ""},
		{"a signer issues", RegisterSigning, only("sign", "example.com/a"), "status", issued, ""},
		{"an approver does not issue", RegisterSigning, only("approve", "example.com/a"), "status", issued, sign},
		{"nor sets a condition", RegisterSigning, only("approve", "example.com/a"), "status", failed, sign},
		{"a status without change", RegisterSigning, only("", ""), "status", func(*certificatesv1.CertificateSigningRequest) {}, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Authorizer: test.may}.Start(t, test.register)
			expect(t, p.Send(t, admissiontest.Request{Object: request("example.com/a", test.change), Old: request("example.com/a"), Subresource: test.subresource}), test.err)
		})
	}
}

func TestTheStatusOfAPodCertificateRequestNeedsThePermissionToSign(t *testing.T) {
	old := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/a"}}
	denied := old.DeepCopy()
	denied.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied}}
	const refused = `PodCertificateRequest.certificates.k8s.io "x" is invalid: spec.signerName: Forbidden: User "alice" is not permitted to "sign" for signer "example.com/a"`
	for _, test := range []struct {
		rule        string
		may         authorizer.Authorizer
		object      *certificatesv1.PodCertificateRequest
		subresource string
		err         string
	}{
		{"for the signer", only("sign", "example.com/a"), denied, "status", ""},
		{"for all signers of the domain", only("sign", "example.com/*"), denied, "status", ""},
		{"for another signer", only("sign", "example.com/b"), denied, "status", refused},
		{"to attest", only("attest", "example.com/a"), denied, "status", refused},
		{"none without a change", only("", ""), old, "status", ""},
		{"none for the rest", only("", ""), denied, "", ""},
	} {
		err := admissiontest.Server{Authorizer: test.may}.Start(t, RegisterSigning).Send(t, admissiontest.Request{Object: test.object, Old: old, Subresource: test.subresource})
		if got := fmt.Sprint(err); got != test.err && (err != nil || test.err != "") {
			t.Errorf("%s: %s, want %s", test.rule, got, test.err)
		}
	}
}

func TestABundleOfASignerNeedsThePermissionToAttest(t *testing.T) {
	bundle := func(signer, trust string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: trust}}
	}
	changed := func(change func(*metav1.ObjectMeta)) *certificatesv1.ClusterTrustBundle {
		b := bundle("example.com/a", "x")
		change(&b.ObjectMeta)
		return b
	}
	collected := changed(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x"} })
	collected.APIVersion, collected.Kind = "certificates.k8s.io/v1beta1", "ClusterTrustBundle" // of the request
	const refused = `clustertrustbundles.certificates.k8s.io "x" is forbidden: user not permitted to attest for signerName "example.com/a"`
	for _, test := range []struct {
		rule        string
		may         authorizer.Authorizer
		object, old *certificatesv1.ClusterTrustBundle
		err         string
	}{
		{"of the signer", only("attest", "example.com/a"), bundle("example.com/a", "x"), nil, ""},
		{"of the domain", only("attest", "example.com/*"), bundle("example.com/a", "x"), nil, ""},
		{"of another signer", only("attest", "example.com/b"), bundle("example.com/a", "x"), nil, refused},
		{"another verb", only("sign", "example.com/a"), bundle("example.com/a", "x"), nil, refused},
		{"none for a bundle without a signer", only("", ""), bundle("", "x"), nil, ""},
		{"none for an update without change", only("", ""), bundle("example.com/a", "x"), bundle("example.com/a", "x"), ""},
		{"none for the garbage collector", only("", ""), collected, bundle("example.com/a", "x"), ""},
		{"a change of labels", only("", ""), changed(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} }), bundle("example.com/a", "x"), refused},
		{"a change", only("", ""), bundle("example.com/a", "y"), bundle("example.com/a", "x"), refused},
		{"a change to a signer of the user", only("attest", "example.com/b"), bundle("example.com/b", "x"), bundle("example.com/a", "x"), refused},
	} {
		t.Run(test.rule, func(t *testing.T) {
			r := admissiontest.Request{Object: test.object}
			if test.old != nil {
				r.Old = test.old
			}
			expect(t, admissiontest.Server{Authorizer: test.may}.Start(t, RegisterAttest).Send(t, r), test.err)
		})
	}
}

func TestNoClientCertificateIsOfThePrivilegedGroup(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(groups ...string) func(*certificatesv1.CertificateSigningRequest) {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{Organization: groups}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		}
	}
	for _, test := range []struct {
		rule   string
		signer string
		change func(*certificatesv1.CertificateSigningRequest)
		err    string
	}{
		{"another group", certificatesv1.KubeAPIServerClientSignerName, of("team"), ""},
		{"the privileged group", certificatesv1.KubeAPIServerClientSignerName, of("team", "system:masters"),
			`certificatesigningrequests.certificates.k8s.io "x" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`},
		{"another signer", "example.com/a", of("system:masters"), ""},
		{"not a request", certificatesv1.KubeAPIServerClientSignerName, func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Request = []byte("x") },
			`certificatesigningrequests.certificates.k8s.io "x" is forbidden: failed to parse CSR: PEM block type must be CERTIFICATE REQUEST`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			expect(t, admissiontest.Server{}.Start(t, RegisterSubject).Send(t, admissiontest.Request{Object: request(test.signer, test.change)}), test.err)
		})
	}
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (!apierrors.IsForbidden(err) || err.Error() != want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
