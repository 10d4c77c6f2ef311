// Package clustertrustbundlepublisher publishes the certificates by which pods verify the
// API server as the ClusterTrustBundle of the signer kubernetes.io/kube-apiserver-serving.
package clustertrustbundlepublisher

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/certificates"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/versions"
)

const (
	name    = "kube-apiserver-serving-clustertrustbundle-publisher"
	signer  = certificates.APIServerServing
	workers = 1
)

// bundle is the kind of the bundles.
type bundle = certificatesv1.ClusterTrustBundle

// bundles are its versions: releases before 1.37 have one of the others, with
// --runtime-config and the gate.
var bundles = []versions.Version[bundle]{
	versions.Of[bundle](),
	versions.Alike[bundle, certificatesv1beta1.ClusterTrustBundle](),
	versions.Alike[bundle, certificatesv1alpha1.ClusterTrustBundle](),
}

// New declares the controller.
func New() controller.Controller {
	attest := controller.Can(certificatesv1.GroupName, []string{"signers"}, []string{"attest"})
	attest.ResourceNames = []string{signer}
	kinds := versions.Objects(bundles)
	var selectors []controller.Selector
	for _, kind := range kinds {
		selectors = append(selectors, controller.Selector{Object: kind, Fields: fields.OneTermEqualSelector("spec.signerName", signer)})
	}
	return controller.Controller{
		Name:       name,
		Aliases:    []string{name + "-controller"},
		Gate:       "ClusterTrustBundle",
		Newer:      true,
		Standalone: true,
		Reads:      kinds[:1],
		Older:      kinds[1:],
		Selectors:  selectors,
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
	version, _, err := versions.Served(bundles, env.Served)
	if err != nil {
		return err
	}
	// There is one request: all bundles of the signer are synced together.
	start := &controller.Trigger[reconcile.Request]{}
	start.Enqueue(request())
	return controller.Run(env, controller.Options{Name: name, Workers: workers},
		&reconciler{versions.Client[bundle]{Client: env.Client, Version: version}, string(env.RootCA)},
		start.Watch(),
		controller.Map(version.Object, func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{request()}
		}, predicate.NewPredicateFuncs(func(obj client.Object) bool { return version.As(obj).Spec.SignerName == signer })))
}

func request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: signer}}
}

// reconciler reads the ClusterTrustBundles of the signer, of which it is the only writer.
type reconciler struct {
	bundles versions.Client[bundle]
	rootCA  string
}

// Reconcile writes the bundle, and deletes those of earlier certificates.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	all, err := r.bundles.List(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := decide(all, r.rootCA)
	if err := r.write(ctx, next); err != nil {
		return reconcile.Result{}, fmt.Errorf("cluster trust bundle %s: %w", next.bundle.Name, err)
	}
	for _, old := range next.stale {
		err := r.bundles.Client.Delete(ctx, r.bundles.Version.Made(old), client.Preconditions{UID: &old.UID})
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete cluster trust bundle %s: %w", old.Name, err)
		}
	}
	return reconcile.Result{}, nil
}

func (r *reconciler) write(ctx context.Context, next action) error {
	made := r.bundles.Version.Made
	switch {
	case next.create:
		// One that another manager has created comes as an event.
		if err := r.bundles.Client.Create(ctx, made(next.bundle)); !apierrors.IsAlreadyExists(err) {
			return err
		}
	case next.bundle.Spec.TrustBundle != r.rootCA:
		written := next.bundle.DeepCopy()
		written.Spec.TrustBundle = r.rootCA
		return r.bundles.Client.Patch(ctx, made(written), client.MergeFromWithOptions(made(next.bundle), client.MergeFromWithOptimisticLock{}))
	}
	return nil
}
