// Package pvprotection keeps persistent volumes that claims are bound to from
// being deleted: with a finalizer, which goes when the volume is being deleted
// and not bound.
package pvprotection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "pvprotection",
		Aliases:     []string{"pv-protection", "persistentvolume-protection-controller"},
		Reads:       []client.Object{&corev1.PersistentVolume{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"persistentvolumes"}, []string{"patch"})},
		Setup: func(_ context.Context, env *controller.Env) error {
			needed := predicate.NewPredicateFuncs(func(obj client.Object) bool {
				return decide(obj.(*corev1.PersistentVolume)) != keep
			})
			return controller.Run(env, controller.Options{Name: "pvprotection", Workers: workers}, &reconciler{env.Client}, controller.For(&corev1.PersistentVolume{}, needed))
		},
	}
}

const workers = 2

// finalizer is the one that protects volumes.
const finalizer = "kubernetes.io/pv-protection"

// action is what to do about a volume's finalizer.
type action int

const (
	keep action = iota
	add
	remove
)

// decide is what the volume needs now.
func decide(pv *corev1.PersistentVolume) action {
	has := controllerutil.ContainsFinalizer(pv, finalizer)
	switch {
	case pv.DeletionTimestamp == nil && !has:
		return add
	case pv.DeletionTimestamp != nil && has && pv.Status.Phase != corev1.VolumeBound:
		return remove
	default:
		return keep
	}
}

// reconciler reads persistent volumes; it alone writes their finalizer
// kubernetes.io/pv-protection.
type reconciler struct {
	client client.Client
}

// Reconcile adds or removes the finalizer of a volume.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, pv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	patch := client.MergeFromWithOptions(pv.DeepCopy(), client.MergeFromWithOptimisticLock{})
	switch decide(pv) {
	case add:
		controllerutil.AddFinalizer(pv, finalizer)
	case remove:
		controllerutil.RemoveFinalizer(pv, finalizer)
	case keep:
		return reconcile.Result{}, nil
	}
	if err := client.IgnoreNotFound(r.client.Patch(ctx, pv, patch)); err != nil {
		return reconcile.Result{}, fmt.Errorf("finalizers of persistent volume %s: %w", pv.Name, err)
	}
	return reconcile.Result{}, nil
}
