// Package csrcleaner deletes CertificateSigningRequests that have served their
// purpose, or that no signer has handled for a day.
package csrcleaner

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

const (
	name    = "csrcleaner"
	workers = 1
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"certificatesigningrequest-cleaner-controller"},
		Standalone:  true,
		Reads:       []client.Object{&certificatesv1.CertificateSigningRequest{}},
		Permissions: []rbacv1.PolicyRule{controller.Can(certificatesv1.GroupName, []string{"certificatesigningrequests"}, []string{"delete"})},
		Setup:       setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, &reconciler{env.Client, env.Clock.Now},
		controller.For(&certificatesv1.CertificateSigningRequest{}))
}

// reconciler reads CertificateSigningRequests, and deletes old ones.
type reconciler struct {
	client client.Client
	now    func() time.Time
}

// Reconcile deletes a request when it is due, and requeues it for that time.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	at, why := due(csr)
	if at.IsZero() || csr.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if left := at.Sub(r.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	klog.FromContext(ctx).V(2).Info("Deleting certificate signing request", "csr", klog.KObj(csr), "reason", why)
	err := r.client.Delete(ctx, csr, client.Preconditions{UID: &csr.UID, ResourceVersion: &csr.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete certificate signing request %s: %w", csr.Name, err)
	}
	return reconcile.Result{}, nil
}
