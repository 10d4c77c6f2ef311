package resourceclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/devices"
)

// claimReconciler reads claims and pods. It ends the reservations of pods that have ended,
// deallocates claims without consumers, and deletes those that were made for such pods.
type claimReconciler struct {
	client client.Client
	live   client.Client
}

// Reconcile brings the consumers of a claim up to date.
func (r *claimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &resourcev1.ResourceClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	remaining := []resourcev1.ResourceClaimConsumerReference{}
	for _, consumer := range claim.Status.ReservedFor {
		uses, err := r.uses(ctx, claim.Namespace, consumer)
		if err != nil {
			return reconcile.Result{}, err
		}
		if uses {
			remaining = append(remaining, consumer)
		}
	}
	err := r.act(ctx, claim, decide(claim, remaining))
	if err == nil && len(remaining) == 0 {
		err = r.deleteUnneeded(ctx, claim)
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("resource claim %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// uses reports whether a consumer still needs the claim, as others than pods always do. A
// pod that the cache does not have may be new: the API server is asked.
func (r *claimReconciler) uses(ctx context.Context, namespace string, consumer resourcev1.ResourceClaimConsumerReference) (bool, error) {
	if !devices.IsPod(consumer) {
		return true, nil
	}
	key, pod := client.ObjectKey{Namespace: namespace, Name: consumer.Name}, &corev1.Pod{}
	err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != consumer.UID {
		pod = &corev1.Pod{}
		err = r.live.Get(ctx, key, pod)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && pod.UID == consumer.UID && !isDone(pod), err
}

// act carries out an action. The writes fail if the claim has changed since it was read:
// the scheduler may have reserved it for another pod.
func (r *claimReconciler) act(ctx context.Context, claim *resourcev1.ResourceClaim, a action) error {
	if a.release || a.deallocate {
		before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if a.release {
			claim.Status.ReservedFor = a.remaining
		}
		if a.deallocate {
			claim.Status.Allocation, claim.Status.Devices = nil, nil
		}
		if err := r.client.Status().Patch(ctx, claim, before); err != nil {
			return err
		}
	}
	if !a.removeFinalizer {
		return nil
	}
	before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(claim, resourcev1.Finalizer)
	return r.client.Patch(ctx, claim, before)
}

// deleteUnneeded deletes a claim without consumers that was made for a pod, if the pod has
// ended: the pod itself may stay for a long time.
func (r *claimReconciler) deleteUnneeded(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	of := owner(claim)
	if of.Name == "" || claim.DeletionTimestamp != nil {
		return nil
	}
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: of.Name}, pod, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err) // the cache may not have it yet; the garbage collector decides
	}
	if !isUnneeded(claim, pod) {
		return nil
	}
	return r.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
}
