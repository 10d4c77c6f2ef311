// Package usercert makes client certificates of users through the API of
// CertificateSigningRequests.
package usercert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

// MinLifetime is the shortest lifetime that a request may ask for.
const MinLifetime = 10 * time.Minute

// User is a user of a cluster.
type User struct {
	Name   string
	Groups []string
	// Lifetime is how long the certificate is valid; the signer may shorten it.
	Lifetime time.Duration
}

// Credentials are a certificate and its private key, in PEM.
type Credentials struct{ Certificate, Key []byte }

// Issue creates a request for the user's certificate, approves it, waits until it is
// signed or ctx is done, and deletes it.
func Issue(ctx context.Context, client kubernetes.Interface, user User) (made Credentials, err error) {
	request, key, err := newRequest(user)
	if err != nil {
		return Credentials{}, err
	}
	csrs := client.CertificatesV1().CertificateSigningRequests()
	csr, err := csrs.Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return Credentials{}, fmt.Errorf("create a certificate signing request: %w", err)
	}
	defer func() {
		// Also when ctx is done.
		if deleteErr := csrs.Delete(context.WithoutCancel(ctx), csr.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(csr.UID))}); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete certificate signing request %s: %w", csr.Name, deleteErr))
		}
	}()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "SVCUserCreate", Message: "Approved by svc user create.",
	})
	if _, err := csrs.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		return Credentials{}, fmt.Errorf("approve certificate signing request %s: %w", csr.Name, err)
	}
	certificate, err := await(ctx, csrs, csr.Name)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{certificate, key}, nil
}

// newRequest returns a request, and its key in PEM.
func newRequest(user User) (*certificatesv1.CertificateSigningRequest, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user.Name, Organization: user.Groups},
	}, key)
	if err != nil {
		return nil, nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "svc-user-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			ExpirationSeconds: ptr.To(int32(user.Lifetime / time.Second)),
		},
	}, private, nil
}

// await returns the certificate when the request has been signed.
func await(ctx context.Context, csrs certificatesclient.CertificateSigningRequestInterface, name string) ([]byte, error) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return csrs.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return csrs.Watch(ctx, o)
		},
	}
	event, err := watchtools.UntilWithSync(ctx, source, &certificatesv1.CertificateSigningRequest{}, nil, func(e watch.Event) (bool, error) {
		csr, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || e.Type == watch.Deleted {
			return false, fmt.Errorf("certificate signing request %s was deleted", name)
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed || c.Type == certificatesv1.CertificateDenied {
				return false, fmt.Errorf("certificate signing request %s: %s: %s", name, c.Reason, c.Message)
			}
		}
		return len(csr.Status.Certificate) > 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("certificate signing request %s was not signed in time: the controller csrsigning must run", name)
	}
	if err != nil {
		return nil, err
	}
	return event.Object.(*certificatesv1.CertificateSigningRequest).Status.Certificate, nil
}
