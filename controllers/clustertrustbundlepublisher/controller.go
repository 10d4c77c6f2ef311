// Package clustertrustbundlepublisher publishes the certificates by which pods verify the
// API server as the ClusterTrustBundle of the signer kubernetes.io/kube-apiserver-serving.
package clustertrustbundlepublisher

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

const (
	name    = "kube-apiserver-serving-clustertrustbundle-publisher"
	signer  = "kubernetes.io/kube-apiserver-serving"
	workers = 1
)

// New declares the controller.
func New() controller.Controller {
	attest := controller.Can(certificatesv1.GroupName, []string{"signers"}, []string{"attest"})
	attest.ResourceNames = []string{signer}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{name + "-controller"},
		Gate:       "ClusterTrustBundle",
		Newer:      true,
		Standalone: true,
		Reads:      []client.Object{&certificatesv1.ClusterTrustBundle{}},
		Selectors: []controller.Selector{
			{Object: &certificatesv1.ClusterTrustBundle{}, Fields: fields.OneTermEqualSelector("spec.signerName", signer)},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can(certificatesv1.GroupName, []string{"clustertrustbundles"}, []string{"create", "patch", "delete"}),
			attest,
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	if len(env.RootCA) == 0 {
		return nil // pods verify the API server by the system's certificates
	}
	// There is one request: all bundles of the signer are synced together.
	start := &controller.Trigger[reconcile.Request]{}
	start.Enqueue(request())
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, &reconciler{env.Client, string(env.RootCA)},
		start.Watch(),
		controller.Map(&certificatesv1.ClusterTrustBundle{}, func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{request()}
		}, predicate.NewPredicateFuncs(ofSigner)))
}

func request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: signer}}
}

func ofSigner(obj client.Object) bool {
	bundle, ok := obj.(*certificatesv1.ClusterTrustBundle)
	return ok && bundle.Spec.SignerName == signer
}

// reconciler reads the ClusterTrustBundles of the signer, of which it is the only writer.
type reconciler struct {
	client client.Client
	rootCA string
}

// Reconcile writes the bundle, and deletes those of earlier certificates.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var all certificatesv1.ClusterTrustBundleList
	if err := r.client.List(ctx, &all); err != nil {
		return reconcile.Result{}, err
	}
	next := decide(all.Items, r.rootCA)
	if err := r.write(ctx, next); err != nil {
		return reconcile.Result{}, fmt.Errorf("cluster trust bundle %s: %w", next.bundle.Name, err)
	}
	for i := range next.stale {
		old := &next.stale[i]
		if err := r.client.Delete(ctx, old, client.Preconditions{UID: &old.UID}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete cluster trust bundle %s: %w", old.Name, err)
		}
	}
	return reconcile.Result{}, nil
}

func (r *reconciler) write(ctx context.Context, next action) error {
	switch {
	case next.create:
		// One that another manager has created comes as an event.
		if err := r.client.Create(ctx, next.bundle); !apierrors.IsAlreadyExists(err) {
			return err
		}
	case next.bundle.Spec.TrustBundle != r.rootCA:
		was := next.bundle.DeepCopy()
		next.bundle.Spec.TrustBundle = r.rootCA
		return r.client.Patch(ctx, next.bundle, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	}
	return nil
}
