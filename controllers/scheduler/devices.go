package scheduler

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/controllers/scheduler/decision"
)

// bindDevices writes the devices and the reservations of a pod's resource claims, and calls
// written with each claim that has them. It fails if a claim has changed since the
// decision.
func (b *binder) bindDevices(ctx context.Context, pod *corev1.Pod, decisions []decision.DeviceDecision, written func(*resourcev1.ResourceClaim)) error {
	for _, d := range decisions {
		claim := &resourcev1.ResourceClaim{}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: d.Claim}
		if err := b.client.Get(ctx, key, claim); err != nil {
			return fmt.Errorf("resource claim %s: %w", d.Claim, err)
		}
		err := b.bindClaim(ctx, pod, claim, d)
		if err != nil {
			// The response may have been lost.
			if live := (&resourcev1.ResourceClaim{}); b.live.Get(ctx, key, live) == nil && devices.IsReservedFor(live, pod.UID) {
				claim, err = live, nil
			}
		}
		if err != nil {
			return fmt.Errorf("resource claim %s: %w", d.Claim, err)
		}
		written(claim)
	}
	return nil
}

// bindClaim writes a decision. An allocated claim has a finalizer, so that it is not
// removed while it is used.
func (b *binder) bindClaim(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim, d decision.DeviceDecision) error {
	switch {
	case devices.IsReservedFor(claim, pod.UID):
		return nil
	case claim.DeletionTimestamp != nil:
		return errors.New("it is being deleted")
	case (claim.Status.Allocation == nil) != (d.Allocation != nil):
		return errors.New("its allocation has changed")
	}
	if d.Allocation != nil && !controllerutil.ContainsFinalizer(claim, resourcev1.Finalizer) {
		before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
		controllerutil.AddFinalizer(claim, resourcev1.Finalizer)
		if err := b.client.Patch(ctx, claim, before); err != nil {
			return err
		}
	}
	before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	d.ApplyTo(claim, pod)
	return b.client.Status().Patch(ctx, claim, before)
}

// release deallocates a claim that only a pod without a node uses, if at all. Its event
// retries the pod. If the claim has changed meanwhile, it stays as it is.
func (b *binder) release(ctx context.Context, pod *corev1.Pod, name string) {
	claim := &resourcev1.ResourceClaim{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil {
		return // it is deleted, or the scheduler stops
	}
	if devices.IsReservedForOthers(claim, pod.UID) {
		return
	}
	before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	claim.Status = resourcev1.ResourceClaimStatus{}
	if err := b.client.Status().Patch(ctx, claim, before); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to deallocate resource claim, will retry with its pod", "resourceClaim", klog.KObj(claim), "reason", err.Error())
	}
}
