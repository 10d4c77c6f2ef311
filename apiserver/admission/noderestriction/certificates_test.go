package noderestriction

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
)

// withCertificate adds a volume with a certificate of a signer.
func withCertificate(p *corev1.Pod, signer string) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: signer}}},
	}}})
}

func TestANodeRequestsCertificatesOfItsPodsOnly(t *testing.T) {
	const signer = "example.com/signer"
	certified := func(name, node string) *corev1.Pod {
		p := pod(name, node, nil)
		p.Spec.ServiceAccountName = "account"
		withCertificate(p, signer)
		return p
	}
	mirror, plain := certified("mirror", "a"), pod("plain", "a", nil)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	plain.Spec.ServiceAccountName = "account"
	client := fake.NewClientset(&corev1.Node{ObjectMeta: meta("", "a")}, &corev1.ServiceAccount{ObjectMeta: meta("ns", "account")},
		certified("mine", "a"), certified("theirs", "b"), mirror, plain)
	// The node may request certificates of another signer for any pod with the account.
	may := authorizer.AuthorizerFunc(func(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		if attrs.GetVerb() == "request-serviceaccounts-podcertificate-signer" && attrs.GetAPIGroup() == "certificates.k8s.io" &&
			attrs.GetResource() == "example.com:other" && attrs.GetNamespace() == "ns" && attrs.GetName() == "account" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), client: client, authorizer: may}
	for _, test := range []struct {
		rule   string
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   string
	}{
		{"of its pod", nil, ""},
		{"in the name of another node", func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "b" }, `PodCertificateRequest.Spec.NodeName="b", which is not the requesting node "a"`},
		{"of an earlier node", func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "old" }, `PodCertificateRequest for pod "ns/mine" names node UID "old", inconsistent with the running node ("a-uid")`},
		{"of another node's pod", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName, s.PodUID = "theirs", "theirs-uid" }, `pod "ns/theirs" is not running on node "a" named in the PodCertificateRequest`},
		{"of an earlier pod", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "old" }, `PodCertificateRequest for pod "ns/mine" contains pod UID ("old") which differs from running pod "mine-uid"`},
		{"of a mirror pod", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName, s.PodUID = "mirror", "mirror-uid" }, `pod "ns/mirror" is a mirror pod`},
		{"of another account", func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "admin" }, `PodCertificateRequest for pod "ns/mine" contains serviceAccountName ("admin") that differs from running pod ("account")`},
		{"of an earlier account", func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "old" }, `PodCertificateRequest for pod "ns/mine" names service account UID "old", which differs from the running service account ("account-uid")`},
		{"of a pod without such a volume", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName, s.PodUID = "plain", "plain-uid" }, `pod "ns/plain" does not mount a podCertificate projected volume for signer "example.com/signer"`},
		{"of a signer that no volume names", func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/third" }, `pod "ns/mine" does not mount a podCertificate projected volume for signer "example.com/third"`},
		{"of a signer for which it has the permission", func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/other" }, ""},
		{"of a pod that does not exist", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "none" }, `while retrieving pod "ns/none" named in the PodCertificateRequest: pods "none" not found`},
	} {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("ns", "r"), Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signer, PodName: "mine", PodUID: "mine-uid", ServiceAccountName: "account", ServiceAccountUID: "account-uid", NodeName: "a", NodeUID: "a-uid",
		}}
		if test.change != nil {
			test.change(&r.Spec)
		}
		got := ""
		if err := p.Validate(t.Context(), admission.NewAttributesRecord(r, nil, schema.GroupVersionKind{}, "ns", "", schema.GroupVersionResource{Resource: "x"},
			"", admission.Create, nil, false, &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}), nil); err != nil {
			if _, got, _ = strings.Cut(err.Error(), "is forbidden: "); got == "" || !apierrors.IsForbidden(err) {
				got = "not forbidden: " + err.Error()
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("ns", "r")}
	if got := admit(t, admission.Update, "", r, r); got != "unexpected operation UPDATE" {
		t.Errorf("an update: %q", got)
	}
}

func TestANodeRequestsCertificatesOfItselfOnly(t *testing.T) {
	for _, test := range []struct {
		rule, signer, name string
		unchecked          bool
		want               string
	}{
		{rule: "a client certificate of its own", signer: certificatesv1.KubeAPIServerClientKubeletSignerName, name: "system:node:a"},
		{rule: "a serving certificate of its own", signer: certificatesv1.KubeletServingSignerName, name: "system:node:a"},
		{rule: "another node's client certificate", signer: certificatesv1.KubeAPIServerClientKubeletSignerName, name: "system:node:b", want: "can only create a node CSR with CN=system:node:a"},
		{rule: "another node's serving certificate", signer: certificatesv1.KubeletServingSignerName, name: "system:node:b", want: "can only create a node CSR with CN=system:node:a"},
		{rule: "another node's serving certificate, unchecked", signer: certificatesv1.KubeletServingSignerName, name: "system:node:b", unchecked: true},
		{rule: "another signer's", signer: "example.com/signer", name: "b"},
		{rule: "no request", signer: certificatesv1.KubeletServingSignerName, want: "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"},
	} {
		csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: test.signer, Request: []byte("x")}}
		if test.name != "" {
			csr.Spec.Request = request(t, test.name)
		}
		p := &plugin{restricts: Restrictions{Certificates: !test.unchecked}}
		err := p.Validate(t.Context(), admission.NewAttributesRecord(csr, nil, schema.GroupVersionKind{}, "", "c",
			schema.GroupVersionResource{Resource: "certificatesigningrequests"}, "", admission.Create, nil, false,
			&user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}), nil)
		got := ""
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), "is forbidden: ")
		}
		if got != test.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want %q", test.rule, err, test.want)
		}
	}
}

// request returns a request for a certificate with a common name, in PEM.
func request(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content})
}
