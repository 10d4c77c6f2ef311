package pvcprotection

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

// reconciler reads persistent volume claims and pods. It is the only writer of
// the claims' finalizer kubernetes.io/pvc-protection. A request is the name of a
// namespace, so that the pods are listed once for all claims that are deleted at
// the same time.
type reconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile adds and removes the finalizers of a namespace's claims.
func (r *reconciler) Reconcile(ctx context.Context, namespace string) (reconcile.Result, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &claims, client.InNamespace(namespace), client.MatchingFields{pendingIndex().Name: pending}); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	var unused []*corev1.PersistentVolumeClaim
	for i := range claims.Items {
		switch claim := &claims.Items[i]; decide(claim) {
		case add:
			errs = append(errs, r.patch(ctx, claim, controllerutil.AddFinalizer))
		case removeIfUnused:
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

// used reports whether a pod in the cache uses the claim.
func (r *reconciler) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodsByClaim().Name: claim.Name}, client.UnsafeDisableDeepCopy)
	for i := range pods.Items {
		if uses(&pods.Items[i], claim) {
			klog.FromContext(ctx).V(4).Info("Persistent volume claim that is being deleted is in use", "claim", klog.KObj(claim), "pod", klog.KObj(&pods.Items[i]))
			return true, nil
		}
	}
	return false, err
}

// podPage is the limit of a page of pods.
const podPage = 500

// release removes the finalizers of those claims that no pod uses. It lists the
// pods from the API server, because the cache may be behind.
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

// patch writes the claim after change has added or removed its finalizer.
func (r *reconciler) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(client.Object, string) bool) error {
	patch := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change(claim, finalizer)
	if err := client.IgnoreNotFound(r.client.Patch(ctx, claim, patch)); err != nil {
		return fmt.Errorf("finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
