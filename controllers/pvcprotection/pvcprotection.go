// Package pvcprotection keeps persistent volume claims that pods use from being
// deleted: with a finalizer, which goes when the claim is being deleted and no
// pod uses it.
package pvcprotection

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "pvcprotection",
		Aliases:     []string{"pvc-protection", "persistentvolumeclaim-protection-controller"},
		Reads:       []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"persistentvolumeclaims"}, []string{"patch"})},
		Setup:       setup,
	}
}

const workers = 4

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, byNeed(), index.PodsByClaim()); err != nil {
		return err
	}
	claims := handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[string]) { addClaim(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) { addClaim(q, e.ObjectNew) },
	}
	pods := handler.TypedFuncs[client.Object, string]{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID || shutDown(after) && !shutDown(before) {
				addPod(q, before)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[string]) {
			addPod(q, e.Object.(*corev1.Pod))
		},
	}
	return controller.Run(env, controller.Options{Name: "pvcprotection", Workers: workers}, &reconciler{client: env.Client, live: env.Live},
		controller.Watch[string]{Object: &corev1.PersistentVolumeClaim{}, Handler: claims},
		controller.Watch[string]{Object: &corev1.Pod{}, Handler: pods})
}

func addClaim(q controller.Queue[string], obj client.Object) {
	if needs(obj.(*corev1.PersistentVolumeClaim)) != nothing {
		q.Add(obj.GetNamespace())
	}
}

func addPod(q controller.Queue[string], pod *corev1.Pod) {
	if hasClaims(pod) {
		q.Add(pod.Namespace)
	}
}

// reconciler reads persistent volume claims and pods; it alone writes the
// claims' finalizer kubernetes.io/pvc-protection. A request is the name of a
// namespace, so that however many claims go at a time, their pods are listed
// once.
type reconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile adds and removes the finalizers of a namespace's claims.
func (r *reconciler) Reconcile(ctx context.Context, namespace string) (reconcile.Result, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &claims, client.InNamespace(namespace), client.MatchingFields{byNeed().Name: someNeed}); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	var unused []*corev1.PersistentVolumeClaim
	for i := range claims.Items {
		switch claim := &claims.Items[i]; needs(claim) {
		case protection:
			errs = append(errs, r.patch(ctx, claim, controllerutil.AddFinalizer))
		case release:
			used, err := r.used(ctx, claim)
			if err == nil && !used {
				unused = append(unused, claim)
			}
			errs = append(errs, err)
		}
	}
	errs = append(errs, r.release(ctx, namespace, unused))
	return reconcile.Result{}, errors.Join(errs...)
}

// used tells whether a pod in the cache uses the claim.
func (r *reconciler) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodsByClaim().Name: claim.Name}, client.UnsafeDisableDeepCopy)
	for i := range pods.Items {
		if uses(&pods.Items[i], claim) {
			klog.FromContext(ctx).V(4).Info("A claim that is being deleted is in use", "claim", klog.KObj(claim), "pod", klog.KObj(&pods.Items[i]))
			return true, nil
		}
	}
	return false, err
}

// podPage is how many pods are read at a time.
const podPage = 500

// release removes the finalizers of claims that no pod uses either that the
// cache does not know yet.
func (r *reconciler) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) error {
	if len(claims) == 0 {
		return nil
	}
	used := map[string]bool{}
	for next := ""; ; {
		var pods corev1.PodList
		if err := r.live.List(ctx, &pods, client.InNamespace(namespace), client.Limit(podPage), client.Continue(next)); err != nil {
			return fmt.Errorf("pods of namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			for _, claim := range claims {
				if hasClaims(&pods.Items[i]) && uses(&pods.Items[i], claim) {
					used[claim.Name] = true
				}
			}
		}
		if next = pods.Continue; next == "" {
			break
		}
	}
	var errs []error
	for _, claim := range claims {
		if !used[claim.Name] {
			errs = append(errs, r.patch(ctx, claim, controllerutil.RemoveFinalizer))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(client.Object, string) bool) error {
	patch := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change(claim, finalizer)
	if err := client.IgnoreNotFound(r.client.Patch(ctx, claim, patch)); err != nil {
		return fmt.Errorf("finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
