package csrapproving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/certificates/internal/request"
)

func TestReconcile(t *testing.T) {
	const kubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
	const node = "system:node:a"
	denied := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}
	for _, test := range []struct {
		rule, signer, user, subject, allowed string
		conditions                           []certificatesv1.CertificateSigningRequestCondition
		approved, fails                      bool
	}{
		{"a member of the bootstrappers gets a node's certificate", kubelet, "system:bootstrap:abcdef", node, "nodeclient", nil, true, false},
		{"a node renews its own", kubelet, node, node, "selfnodeclient", nil, true, false},
		{"a node does not get another's", kubelet, "system:node:b", node, "selfnodeclient", nil, false, true},
		{"a requester without the right gets none", kubelet, "system:bootstrap:abcdef", node, "", nil, false, true},
		{"a user's certificate is left to an administrator", certificatesv1.KubeAPIServerClientSignerName, "ann", "ann", "nodeclient", nil, false, false},
		{"a serving certificate is left to an administrator", certificatesv1.KubeletServingSignerName, node, node, "selfnodeclient", nil, false, false},
		{"what is not a node's certificate is left to an administrator", kubelet, "ann", "ann", "nodeclient", nil, false, false},
		{"a denied request stays denied", kubelet, node, node, "selfnodeclient", []certificatesv1.CertificateSigningRequestCondition{denied}, false, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: test.subject, Organization: []string{"system:nodes"}}}, key)
			if err != nil {
				t.Fatal(err)
			}
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
					SignerName: test.signer, Username: test.user,
					Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
				},
				Status: certificatesv1.CertificateSigningRequestStatus{Conditions: test.conditions},
			}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(csr).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
					review := obj.(*authorizationv1.SubjectAccessReview)
					a := review.Spec.ResourceAttributes
					review.Status.Allowed = review.Spec.User == test.user && a.Verb == "create" && a.Resource == "certificatesigningrequests" && a.Subresource == test.allowed
					return nil
				},
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, _ ...client.SubResourceUpdateOption) error {
					if sub != "approval" {
						t.Errorf("%s is written", sub)
					}
					return c.Status().Update(ctx, obj)
				},
			}).Build()
			if _, err := (&reconciler{c, c}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}); (err != nil) != test.fails {
				t.Errorf("got %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			if got := request.Has(csr, certificatesv1.CertificateApproved); got != test.approved {
				t.Errorf("approved: %v, %+v", got, csr.Status.Conditions)
			}
		})
	}
}
