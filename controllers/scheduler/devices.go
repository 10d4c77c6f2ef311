package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		claim, err := b.ensureClaim(ctx, pod, d)
		if err == nil {
			err = b.bindClaim(ctx, pod, claim, d)
		}
		if err != nil {
			// The response may have been lost.
			key := client.ObjectKey{Namespace: pod.Namespace, Name: d.Claim}
			if live := (&resourcev1.ResourceClaim{}); b.live.Get(ctx, key, live) == nil && isWritten(live, pod, d) {
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

// ensureClaim returns the claim of a decision. The one for the extended resources of the pod
// is created if it does not exist.
func (b *binder) ensureClaim(ctx context.Context, pod *corev1.Pod, d decision.DeviceDecision) (*resourcev1.ResourceClaim, error) {
	claim, key := &resourcev1.ResourceClaim{}, client.ObjectKey{Namespace: pod.Namespace, Name: d.Claim}
	err := b.client.Get(ctx, key, claim)
	if d.Create == nil || client.IgnoreNotFound(err) != nil {
		return claim, err
	}
	if err != nil { // there is none
		claim = d.Create.DeepCopy()
		if err = b.client.Create(ctx, claim); apierrors.IsAlreadyExists(err) {
			err = b.live.Get(ctx, key, claim)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case devices.ExtendedClaimOf(claim) != pod.UID:
		return nil, errors.New("it exists and is not that of the pod's extended resources: delete it")
	case !apiequality.Semantic.DeepEqual(claim.Spec, d.Create.Spec):
		return nil, errors.New("it was made for another node")
	}
	return claim, nil
}

// isWritten reports whether a claim is as the decision says.
func isWritten(claim *resourcev1.ResourceClaim, pod *corev1.Pod, d decision.DeviceDecision) bool {
	return devices.IsReservedFor(claim, pod.UID) && (d.Allocation == nil || claim.Status.Allocation != nil &&
		apiequality.Semantic.DeepEqual(claim.Status.Allocation.Devices, d.Allocation.Devices) &&
		apiequality.Semantic.DeepEqual(claim.Status.Allocation.NodeSelector, d.Allocation.NodeSelector))
}

// bindClaim writes a decision. An allocated claim has a finalizer, so that it is not
// removed while it is used.
func (b *binder) bindClaim(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim, d decision.DeviceDecision) error {
	switch {
	case isWritten(claim, pod, d):
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

// nameExtendedClaim writes into a pod's status which claim is that of its extended resources,
// or that there is none. A pod that was deleted needs it no more: its binding fails.
func (b *binder) nameExtendedClaim(ctx context.Context, pod *corev1.Pod, status *decision.ExtendedStatus) error {
	if status == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"extendedResourceClaimStatus": status.PodExtendedResourceClaimStatus},
	})
	if err != nil {
		return err
	}
	err = b.plain.Status().Patch(ctx, named(pod), client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write status.extendedResourceClaimStatus: %w", err)
	}
	return nil
}

// gives starts to give back what the pod of a step, which has no node, has of resource claims.
// Until released, the pod is not decided on: it could be bound with what is being given back.
func (c *core) gives(s step) []decision.Release {
	pod := c.queue.Get(s.pod.UID)
	if pod == nil {
		return nil // it was deleted, or another scheduler has bound it
	}
	releases := c.snapshot.Releases(pod, s.release)
	if len(releases) > 0 {
		c.releasing.Insert(pod.UID)
	}
	return releases
}

// released retries a pod that has given claims back, with the claims as they are now. The decision
// before that has set its backoff, which grows if it can give nothing back.
func (c *core) released(pod types.UID, claims []*resourcev1.ResourceClaim) {
	c.releasing.Delete(pod)
	for _, claim := range claims {
		c.snapshot.Released(claim)
	}
	c.queue.EndWait(pod)
}

// release gives back what the pod of a step has of resource claims, if it has any.
func (l *loop) release(ctx context.Context, s step) {
	releases := l.core.gives(s)
	if len(releases) == 0 {
		return
	}
	l.running.Go(func() {
		claims := l.binder.release(ctx, s.pod, releases)
		l.post(ctx, func() { l.core.released(s.pod.UID, claims) })
	})
}

// release gives back what a pod without a node has of claims, and returns these as they are
// afterwards. A claim that has changed since the decision is neither deallocated nor deleted.
func (b *binder) release(ctx context.Context, pod *corev1.Pod, releases []decision.Release) []*resourcev1.ResourceClaim {
	var changed []*resourcev1.ResourceClaim
	for _, r := range releases {
		claim, give := r.Claim.DeepCopy(), b.unreserve
		switch {
		case r.Whole && devices.ExtendedClaimOf(claim) != "":
			give = b.delete
		case r.Whole:
			give = b.deallocate
		}
		if err := give(ctx, pod, claim); err == nil {
			changed = append(changed, claim)
		} else if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).V(2).Info("Failed to release resource claim, will retry with its pod", "resourceClaim", klog.KObj(claim), "reason", err.Error())
		}
	}
	return changed
}

// unreserve ends the reservation of a claim for a pod, whatever else of the claim has changed.
func (b *binder) unreserve(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"reservedFor": []any{map[string]any{"$patch": "delete", "uid": pod.UID}}},
	})
	if err != nil {
		return err
	}
	return b.client.Status().Patch(ctx, claim, client.RawPatch(types.StrategicMergePatchType, patch))
}

func (b *binder) deallocate(ctx context.Context, _ *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	claim.Status = resourcev1.ResourceClaimStatus{}
	return b.client.Status().Patch(ctx, claim, before)
}

// delete deletes a claim, which is not protected by the finalizer of its allocation.
func (b *binder) delete(ctx context.Context, _ *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	if controllerutil.ContainsFinalizer(claim, resourcev1.Finalizer) {
		before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
		controllerutil.RemoveFinalizer(claim, resourcev1.Finalizer)
		if err := b.client.Patch(ctx, claim, before); err != nil {
			return err
		}
	}
	err := b.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	claim.DeletionTimestamp = &metav1.Time{} // no watch shows yet that it has gone
	return err
}
