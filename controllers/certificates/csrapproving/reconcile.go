package csrapproving

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/certificates/internal/request"
)

// reconciler reads CertificateSigningRequests. It writes the condition Approved of
// those that are for the client certificates of nodes.
type reconciler struct {
	client client.Client
	// live creates access reviews, which no cache can have.
	live client.Client
}

// Reconcile approves a request if its requester is allowed to be approved.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(csr.Status.Certificate) > 0 || request.Has(csr, certificatesv1.CertificateApproved) || request.Has(csr, certificatesv1.CertificateDenied) {
		return reconcile.Result{}, nil
	}
	parsed, err := request.Parse(csr.Spec.Request)
	if err != nil {
		return reconcile.Result{}, nil // the API server has refused it, or another signer's form
	}
	ways := permissions(csr, parsed)
	for _, way := range ways {
		allowed, err := r.allowed(ctx, csr, way.subresource)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("review access of the requester of %s: %w", csr.Name, err)
		}
		if allowed {
			return reconcile.Result{}, r.approve(ctx, csr, way.message)
		}
	}
	if len(ways) > 0 {
		// A grant that comes later has no event here.
		return reconcile.Result{}, fmt.Errorf("certificate signing request %s: its requester %q may not be approved: it may not create certificatesigningrequests/%s",
			csr.Name, csr.Spec.Username, ways[0].subresource)
	}
	return reconcile.Result{}, nil
}

// allowed reports whether the requester may create a subresource of requests.
func (r *reconciler) allowed(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: subresource, Verb: "create",
		},
	}}
	for key, values := range csr.Spec.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	err := r.live.Create(ctx, review)
	return review.Status.Allowed, err
}

func (r *reconciler) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, message string) error {
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	err := r.client.SubResource("approval").Update(ctx, csr)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("approve certificate signing request %s: %w", csr.Name, err)
	}
	klog.FromContext(ctx).Info("Approved certificate signing request", "csr", klog.KObj(csr), "user", csr.Spec.Username)
	return nil
}
