// Package vacprotection protects volume attributes classes that volumes or claims use from
// deletion with a finalizer.
package vacprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// finalizer protects classes from deletion.
const finalizer = "kubernetes.io/vac-protection"

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "vacprotection",
		Aliases:     []string{"volumeattributesclass-protection-controller"},
		Newer:       true,
		Reads:       []client.Object{&storagev1.VolumeAttributesClass{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("storage.k8s.io", []string{"volumeattributesclasses"}, []string{"patch"})},
		Setup:       setup,
	}
}

const workers = 2

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, claimsByClass(), volumesByClass()); err != nil {
		return err
	}
	needed := predicate.NewPredicateFuncs(func(obj client.Object) bool { return decide(obj.(*storagev1.VolumeAttributesClass)) != keep })
	return controller.Run(env, controller.Options{Name: "vacprotection", Workers: workers}, &reconciler{env.Client, env.Live},
		controller.For(&storagev1.VolumeAttributesClass{}, needed),
		controller.Map(&corev1.PersistentVolumeClaim{}, func(_ context.Context, obj client.Object) []reconcile.Request {
			return requests(classesOfClaim(obj.(*corev1.PersistentVolumeClaim)))
		}),
		controller.Map(&corev1.PersistentVolume{}, func(_ context.Context, obj client.Object) []reconcile.Request {
			return requests(classesOfVolume(obj.(*corev1.PersistentVolume)))
		}))
}

func requests(names []string) []reconcile.Request {
	all := make([]reconcile.Request, len(names))
	for i, name := range names {
		all[i].NamespacedName = types.NamespacedName{Name: name}
	}
	return all
}

func claimsByClass() controller.Index {
	return controller.Index{Name: "volume-attributes-class", Object: &corev1.PersistentVolumeClaim{}, Values: func(obj client.Object) []string {
		return classesOfClaim(obj.(*corev1.PersistentVolumeClaim))
	}}
}

func volumesByClass() controller.Index {
	return controller.Index{Name: "volume-attributes-class", Object: &corev1.PersistentVolume{}, Values: func(obj client.Object) []string {
		return classesOfVolume(obj.(*corev1.PersistentVolume))
	}}
}

// classesOfClaim returns the classes that a claim wants, has, or is changed to.
func classesOfClaim(claim *corev1.PersistentVolumeClaim) []string {
	names := []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName}
	if s := claim.Status.ModifyVolumeStatus; s != nil {
		names = append(names, &s.TargetVolumeAttributesClassName)
	}
	return named(names...)
}

func classesOfVolume(pv *corev1.PersistentVolume) []string {
	return named(pv.Spec.VolumeAttributesClassName)
}

// named returns the names that are set, each once.
func named(names ...*string) []string {
	var all []string
	for _, name := range names {
		if name != nil && *name != "" && !slices.Contains(all, *name) {
			all = append(all, *name)
		}
	}
	return all
}

// action is what to do with a class's finalizer.
type action int

const (
	keep action = iota
	add
	removeIfUnused
)

// decide returns what to do with the class's finalizer.
func decide(class *storagev1.VolumeAttributesClass) action {
	has := controllerutil.ContainsFinalizer(class, finalizer)
	switch {
	case class.DeletionTimestamp == nil && !has:
		return add
	case class.DeletionTimestamp != nil && has:
		return removeIfUnused
	default:
		return keep
	}
}

// reconciler reads classes, claims and volumes. It is the only writer of the classes'
// finalizer kubernetes.io/vac-protection.
type reconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile adds the finalizer of a class, or removes it if nothing uses the class.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &storagev1.VolumeAttributesClass{}
	if err := r.client.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	patch := client.MergeFromWithOptions(class.DeepCopy(), client.MergeFromWithOptimisticLock{})
	switch decide(class) {
	case add:
		controllerutil.AddFinalizer(class, finalizer)
	case removeIfUnused:
		used, err := r.used(ctx, class.Name)
		if err != nil || used {
			return reconcile.Result{}, err
		}
		controllerutil.RemoveFinalizer(class, finalizer)
	case keep:
		return reconcile.Result{}, nil
	}
	if err := client.IgnoreNotFound(r.client.Patch(ctx, class, patch)); err != nil {
		return reconcile.Result{}, fmt.Errorf("finalizers of volume attributes class %s: %w", class.Name, err)
	}
	return reconcile.Result{}, nil
}

// used reports whether a claim or volume uses a class. If the cache has none, the API
// server is asked, as the cache may be older.
func (r *reconciler) used(ctx context.Context, name string) (bool, error) {
	by := client.MatchingFields{claimsByClass().Name: name}
	var claims corev1.PersistentVolumeClaimList
	var volumes corev1.PersistentVolumeList
	if err := r.client.List(ctx, &claims, by, client.UnsafeDisableDeepCopy); err != nil || len(claims.Items) > 0 {
		return len(claims.Items) > 0, err
	}
	if err := r.client.List(ctx, &volumes, by, client.UnsafeDisableDeepCopy); err != nil || len(volumes.Items) > 0 {
		return len(volumes.Items) > 0, err
	}
	if err := r.live.List(ctx, &claims); err != nil {
		return false, err
	}
	if err := r.live.List(ctx, &volumes); err != nil {
		return false, err
	}
	return slices.ContainsFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return slices.Contains(classesOfClaim(&c), name) }) ||
		slices.ContainsFunc(volumes.Items, func(v corev1.PersistentVolume) bool { return slices.Contains(classesOfVolume(&v), name) }), nil
}
