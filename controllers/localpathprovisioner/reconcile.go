package localpathprovisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/controllers/controller"
)

// claimReconciler reads claims, classes and nodes. It creates volumes, and gives up the
// node that was selected for a claim if it can have none there.
type claimReconciler struct {
	client   client.Client
	recorder record.EventRecorder
	scheme   *runtime.Scheme
}

// Reconcile creates the volume of a claim.
func (r *claimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil || !requested(claim) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	class := &storagev1.StorageClass{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: volume.GetPersistentVolumeClaimClass(claim)}, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the binder reports it
	}
	selected := claim.Annotations[volume.AnnSelectedNode]
	if selected == "" {
		if ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate {
			r.recorder.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "storage class %q: volumeBindingMode must be %s, because a volume is on the node of its pod",
				class.Name, storagev1.VolumeBindingWaitForFirstConsumer)
		}
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: selected}, node)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	var pv *corev1.PersistentVolume
	if err == nil {
		pv, err = provision(claim, class, node)
	}
	if err != nil {
		r.recorder.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %s", class.Name, err)
		return reconcile.Result{}, r.reschedule(ctx, claim)
	}
	return reconcile.Result{}, r.create(ctx, claim, pv)
}

// create creates a volume for a claim. It is no error if it exists.
func (r *claimReconciler) create(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	ref, err := reference.GetReference(r.scheme, claim)
	if err != nil {
		return err
	}
	pv.Spec.ClaimRef = ref
	err = r.client.Create(ctx, pv)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("create volume %s for claim %s: %w", pv.Name, klog.KObj(claim), err)
	}
	r.recorder.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", pv.Name)
	return nil
}

// reschedule gives up the selected node, so that the scheduler selects one again.
func (r *claimReconciler) reschedule(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	before := claim.DeepCopy()
	delete(claim.Annotations, volume.AnnSelectedNode)
	if err := r.client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("claim %s: %w", klog.KObj(claim), err))
	}
	return nil
}

// volumeReconciler reads the provisioner's volumes and nodes. It deletes released
// volumes, and removes the finalizer of those whose node has gone.
type volumeReconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile deletes a volume that is released.
func (r *volumeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, pv); err != nil || !localpath.Made(pv) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch decide(pv) {
	case remove:
		err := r.client.Delete(ctx, pv, client.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion})
		return reconcile.Result{}, client.IgnoreNotFound(err)
	case abandon:
		return reconcile.Result{}, r.abandon(ctx, pv)
	}
	return reconcile.Result{}, nil
}

// abandon removes the finalizer of a volume whose node has gone.
func (r *volumeReconciler) abandon(ctx context.Context, pv *corev1.PersistentVolume) error {
	for _, reader := range []client.Reader{r.client, r.live} {
		err := reader.Get(ctx, client.ObjectKey{Name: pv.Labels[localpath.NodeLabel]}, &corev1.Node{})
		if !apierrors.IsNotFound(err) {
			return err // nil: its agent removes the finalizer
		}
	}
	before := pv.DeepCopy()
	controllerutil.RemoveFinalizer(pv, localpath.Finalizer)
	if err := r.client.Patch(ctx, pv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("finalizers of volume %s: %w", pv.Name, err))
	}
	klog.FromContext(ctx).Info("Gave up the directory of a volume, because its node was deleted", "volume", pv.Name, "node", pv.Labels[localpath.NodeLabel])
	return nil
}

// classReconciler creates the storage class of the provisioner.
type classReconciler struct {
	client  client.Client
	trigger controller.Trigger[string]
}

// Reconcile creates the class unless one of its name exists.
func (r *classReconciler) Reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	var classes storagev1.StorageClassList
	if err := r.client.List(ctx, &classes); err != nil {
		return reconcile.Result{}, err
	}
	isDefault := true
	for i := range classes.Items {
		if classes.Items[i].Name == name {
			return reconcile.Result{}, nil
		}
		if classes.Items[i].Annotations[defaultAnnotation] == "true" {
			isDefault = false
		}
	}
	if err := r.client.Create(ctx, classOf(name, isDefault)); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("create storage class %s: %w", name, err)
	}
	return reconcile.Result{}, nil
}
