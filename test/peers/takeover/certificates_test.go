package takeover

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// requester is the user of a node that requests certificates of itself.
const requester = "system:node:takeover"

// publisher is the signer whose bundle has the certificates of the API server.
const publisher = "kubernetes.io/kube-apiserver-serving"

// asNode returns a client as the requester.
func asNode(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: requester, Groups: []string{"system:nodes", "system:authenticated"}}
	return kubernetes.NewForConfig(config)
}

// beginCertificates allows the requester to get certificates of itself.
func (w *work) beginCertificates(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta("takeover-requests"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests", "certificatesigningrequests/selfnodeclient"}, Verbs: []string{"create"}},
	}}, create); err != nil {
		return err
	}
	_, err := w.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("takeover-requests"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "takeover-requests"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: requester}},
	}, create)
	return err
}

// clientRequest is the name of a round's request, which is approved and signed.
func clientRequest(round int) string { return fmt.Sprintf("client-%d", round) }

// changeCertificates requests a certificate, and deletes the bundle.
func (w *work) changeCertificates(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	pem, err := cert.MakeCSR(key, &pkix.Name{CommonName: requester, Organization: []string{"system:nodes"}}, nil, nil)
	if err != nil {
		return err
	}
	if _, err := w.node.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: meta(clientRequest(w.round)), Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	bundles, err := w.bundles(ctx)
	if err != nil {
		return err
	}
	for _, name := range bundles {
		if err := w.client.CertificatesV1beta1().ClusterTrustBundles().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// bundles returns the names of the bundles of the API server's certificates.
func (w *work) bundles(ctx context.Context) ([]string, error) {
	list, err := w.client.CertificatesV1beta1().ClusterTrustBundles().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + publisher})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range list.Items {
		names = append(names, b.Name)
	}
	return names, nil
}

// certificates checks the requests of the round, and that there is one bundle.
func (w *work) certificates(ctx context.Context) error {
	bundles, err := w.bundles(ctx)
	if err != nil {
		return err
	}
	if len(bundles) != 1 {
		return fmt.Errorf("the bundles of certificates of the API server are %v, want one", bundles)
	}
	if w.round == 0 {
		return nil
	}
	request, err := w.client.CertificatesV1().CertificateSigningRequests().Get(ctx, clientRequest(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := request.Status; len(s.Certificate) == 0 || len(s.Conditions) != 1 || s.Conditions[0].Type != certificatesv1.CertificateApproved {
		return fmt.Errorf("the certificate is not approved and issued: %+v", s.Conditions)
	}
	return nil
}
