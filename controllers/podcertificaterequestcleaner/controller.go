// Package podcertificaterequestcleaner deletes PodCertificateRequests after 15 minutes: by
// then a signer has decided about them, and the node has the certificate.
package podcertificaterequestcleaner

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
	name    = "podcertificaterequestcleaner"
	workers = 1

	// kept is how long a request exists, in whatever state, as in kube-controller-manager.
	kept = 15 * time.Minute
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"podcertificaterequest-cleaner-controller"},
		Gate:        "PodCertificateRequest",
		Newer:       true,
		Reads:       []client.Object{&certificatesv1.PodCertificateRequest{}},
		Permissions: []rbacv1.PolicyRule{controller.Can(certificatesv1.GroupName, []string{"podcertificaterequests"}, []string{"delete"})},
		Setup:       setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, &reconciler{env.Client, env.Clock.Now},
		controller.For(&certificatesv1.PodCertificateRequest{}))
}

// reconciler reads PodCertificateRequests, and deletes old ones.
type reconciler struct {
	client client.Client
	now    func() time.Time
}

// Reconcile deletes a request when it is due, and requeues it for that time.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	request := &certificatesv1.PodCertificateRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, request, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if request.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if left := request.CreationTimestamp.Add(kept).Sub(r.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	klog.FromContext(ctx).V(2).Info("Deleting pod certificate request", "podCertificateRequest", klog.KObj(request))
	if err := r.client.Delete(ctx, request, client.Preconditions{UID: &request.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete pod certificate request %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}
