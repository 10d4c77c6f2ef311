package csrsigning

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/certificates/internal/request"
)

// reconciler reads CertificateSigningRequests. It writes the certificates of the
// approved ones that are for its signers, or the condition Failed.
type reconciler struct {
	client  client.Client
	now     func() time.Time
	longest time.Duration
	// signers are the files of each signer's authority. They are read for each
	// request, so that a renewed authority is used at once.
	signers map[string]files
}

// Reconcile signs a request that is approved.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	f, ours := r.signers[csr.Spec.SignerName]
	if !ours || len(csr.Status.Certificate) > 0 || !request.Has(csr, certificatesv1.CertificateApproved) ||
		request.Has(csr, certificatesv1.CertificateDenied) || request.Has(csr, certificatesv1.CertificateFailed) {
		return reconcile.Result{}, nil
	}
	parsed, err := request.Parse(csr.Spec.Request)
	if err == nil {
		err = request.Check(csr.Spec.SignerName, parsed, csr.Spec.Usages)
	}
	if err != nil {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
			LastUpdateTime: metav1.NewTime(r.now()),
		})
		return reconcile.Result{}, r.write(ctx, csr, "Failed certificate signing request")
	}
	signer, err := readAuthority(f.cert, f.key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("authority of the signer %s: %w", f.signer, err)
	}
	if csr.Status.Certificate, err = signer.sign(parsed, csr.Spec.Usages, lifetime(csr.Spec.ExpirationSeconds, r.longest), r.now()); err != nil {
		return reconcile.Result{}, fmt.Errorf("sign certificate signing request %s: %w", csr.Name, err)
	}
	return reconcile.Result{}, r.write(ctx, csr, "Signed certificate signing request")
}

// write updates the status, and logs what was done.
func (r *reconciler) write(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, done string) error {
	err := r.client.Status().Update(ctx, csr)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of certificate signing request %s: %w", csr.Name, err)
	}
	klog.FromContext(ctx).Info(done, "csr", klog.KObj(csr), "signer", csr.Spec.SignerName, "user", csr.Spec.Username)
	return nil
}
