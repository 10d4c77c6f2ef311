// Package persistentvolumeexpander owns the controller of claims whose request has grown:
// it expands volumes of the provisioner svc.dev/local-path, whose size is a number only,
// and leaves others to the resizers of their drivers.
package persistentvolumeexpander

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "persistentvolumeexpander",
		Aliases: []string{"persistentvolume-expander", "persistentvolume-expander-controller"},
		Reads:   []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"persistentvolumes", "persistentvolumeclaims/status"}, []string{"patch"}),
		},
		Setup: func(_ context.Context, env *controller.Env) error {
			wanted := predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { return grown(e.Object.(*corev1.PersistentVolumeClaim)) },
				UpdateFunc: func(e event.UpdateEvent) bool {
					before, after := e.ObjectOld.(*corev1.PersistentVolumeClaim), e.ObjectNew.(*corev1.PersistentVolumeClaim)
					return grown(after) && (!grown(before) || request(after).Cmp(*request(before)) != 0)
				},
				DeleteFunc: func(event.DeleteEvent) bool { return false },
			}
			return controller.Run(env, controller.Options{Name: "persistentvolumeexpander", Workers: workers},
				&reconciler{env.Client, env.Recorder("volume_expand")}, controller.For(&corev1.PersistentVolumeClaim{}, wanted))
		},
	}
}

const workers = 2

// reconciler reads claims and volumes. It writes the capacity of volumes of the
// provisioner svc.dev/local-path and of their claims.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
}

// Reconcile expands the volume of a claim.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil || !grown(claim) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return reconcile.Result{}, nil
	}
	if !localpath.Made(pv) {
		r.recorder.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.expand(ctx, claim, pv)
}

// expand writes the new capacity, first of the volume.
func (r *reconciler) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if pv.Spec.Capacity.Storage().Cmp(*request(claim)) < 0 {
		before := pv.DeepCopy()
		pv.Spec.Capacity[corev1.ResourceStorage] = *request(claim)
		if err := r.client.Patch(ctx, pv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("capacity of volume %s: %w", pv.Name, err)
		}
	}
	before := claim.DeepCopy()
	claim.Status.Capacity[corev1.ResourceStorage] = *pv.Spec.Capacity.Storage()
	if err := r.client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("capacity of claim %s/%s: %w", claim.Namespace, claim.Name, err))
	}
	r.recorder.Event(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "ExpandVolume succeeded for volume "+pv.Name)
	return nil
}
