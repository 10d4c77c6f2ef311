package persistentvolumebinder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/persistentvolumebinder/binding"
)

// volumeReconciler reads volumes and claims. It alone writes the phase of volumes, with
// claimReconciler, and removes claim references.
type volumeReconciler struct {
	binder
	claims *controller.Trigger[reconcile.Request]
}

// Reconcile sets the phase of a volume by its claim.
func (r *volumeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, pv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	state := binding.VolumeState{Volume: pv}
	ref := pv.Spec.ClaimRef
	if ref != nil && ref.UID != "" {
		claim, err := r.claim(ctx, ref)
		if err != nil {
			return reconcile.Result{}, err
		}
		state.Claim = claim
	}
	plan := binding.Volume(state)
	if plan.Unbind {
		if err := r.unbind(ctx, pv); err != nil {
			return reconcile.Result{}, err
		}
	}
	r.event(pv, plan.Event)
	if plan.Phase != "" {
		if err := r.setVolumePhase(ctx, pv, plan.Phase, plan.Message); err != nil {
			return reconcile.Result{}, err
		}
	}
	if plan.SyncClaim {
		r.claims.Enqueue(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
	return reconcile.Result{}, nil
}

// claim returns the claim of a reference, nil if it does not exist. To give up a
// claim takes more than a cache.
func (r *volumeReconciler) claim(ctx context.Context, ref *corev1.ObjectReference) (*corev1.PersistentVolumeClaim, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	for _, reader := range []client.Reader{r.client, r.live} {
		claim := &corev1.PersistentVolumeClaim{}
		err := reader.Get(ctx, key, claim)
		switch {
		case err == nil && claim.UID == ref.UID:
			return claim, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return nil, nil
}

// unbind removes the reference that a controller has made, or the UID of one that a
// user has made.
func (r *volumeReconciler) unbind(ctx context.Context, pv *corev1.PersistentVolume) error {
	before := pv.DeepCopy()
	if _, ours := pv.Annotations[volume.AnnBoundByController]; ours {
		pv.Spec.ClaimRef = nil
		delete(pv.Annotations, volume.AnnBoundByController)
	} else {
		pv.Spec.ClaimRef.UID = ""
	}
	if err := r.client.Patch(ctx, pv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("unbind volume %s: %w", pv.Name, err)
	}
	return nil
}

// setVolumePhase writes the phase of a volume.
func (b *binder) setVolumePhase(ctx context.Context, pv *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) error {
	if pv.Status.Phase == phase && pv.Status.Message == message {
		return nil
	}
	before := pv.DeepCopy()
	pv.Status.Phase, pv.Status.Message = phase, message
	if err := b.client.Status().Patch(ctx, pv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of volume %s: %w", pv.Name, err)
	}
	return nil
}

func equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }
