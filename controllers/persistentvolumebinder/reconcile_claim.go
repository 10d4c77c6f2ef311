package persistentvolumebinder

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/persistentvolumebinder/binding"
	"svc.dev/svc/internal/exponent"
)

// binder is what both reconcilers have. live reads from the API server.
type binder struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
}

// event records an event about an object.
func (b *binder) event(about client.Object, e binding.Event) {
	if e.Reason != "" {
		b.recorder.Event(about, e.Type, e.Reason, e.Message)
	}
}

// claimReconciler reads claims, volumes, classes and pods. It writes the volume name,
// the default class, the annotations of binding and provisioning and the phase of
// claims, and the claim references of volumes, which the scheduler writes too.
type claimReconciler struct {
	binder
	trigger controller.Trigger[reconcile.Request]
	// stock holds the volumes that claims can take, and classSyncs receives the classes of
	// volumes that were put back.
	stock      *binding.Stock
	classSyncs *controller.Trigger[string]
	reminders  reminders
	now        func() time.Time
}

// Reconcile binds a claim, or requests a volume for it.
func (r *claimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil {
		if apierrors.IsNotFound(err) {
			r.reminders.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	state, err := r.state(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	taken, err := r.candidates(ctx, claim, &state)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := binding.Claim(state)
	if plan.Bind != nil {
		err = r.bind(ctx, claim, plan.Bind)
	}
	if taken != nil && (err != nil || plan.Bind != taken) {
		err = errors.Join(err, r.putBack(ctx, taken))
	}
	if err != nil || plan.Bind != nil {
		r.reminders.forget(req.NamespacedName)
		return reconcile.Result{}, err
	}
	if plan.Class != "" || plan.Provisioner != "" {
		if err := r.request(ctx, claim, plan); err != nil {
			return reconcile.Result{}, err
		}
	}
	after := r.remind(claim, plan)
	if plan.Phase == "" {
		return reconcile.Result{}, nil
	}
	if err := r.setPhase(ctx, claim, plan.Phase, nil); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// remind records the event of a plan, and returns the time after which that of a claim that
// waits is recorded again.
func (r *claimReconciler) remind(claim *corev1.PersistentVolumeClaim, plan binding.ClaimPlan) time.Duration {
	key := client.ObjectKeyFromObject(claim)
	if plan.Phase != corev1.ClaimPending || plan.Event.Reason == "" {
		r.reminders.forget(key)
		r.event(claim, plan.Event)
		return 0
	}
	if r.reminders.due(key, plan.Event, r.now()) {
		r.event(claim, plan.Event)
	}
	return remindAfter
}

// unbound reports whether a volume has to be found for a claim.
func unbound(claim *corev1.PersistentVolumeClaim) bool {
	_, bound := claim.Annotations[volume.AnnBindCompleted]
	return !bound && claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
}

// putBack puts a volume back that was taken and not bound, and requests a sync of the
// claims of its class: one may have missed it.
func (r *claimReconciler) putBack(ctx context.Context, taken *corev1.PersistentVolume) error {
	err := r.stock.Return(taken.Name, func() (*corev1.PersistentVolume, error) {
		pv := &corev1.PersistentVolume{}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(taken), pv); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return pv, nil
	})
	r.classSyncs.Enqueue(volume.GetPersistentVolumeClass(taken))
	return err
}

// state reads what a plan is made from.
func (r *claimReconciler) state(ctx context.Context, claim *corev1.PersistentVolumeClaim) (binding.ClaimState, error) {
	state := binding.ClaimState{Claim: claim}
	if claim.Spec.VolumeName != "" {
		pv := &corev1.PersistentVolume{}
		err := r.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv)
		if apierrors.IsNotFound(err) { // to report data as lost takes more than a cache
			err = r.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv)
		}
		if err == nil {
			state.Volume = pv
		}
		return state, client.IgnoreNotFound(err)
	}
	if !unbound(claim) {
		return state, nil
	}
	if err := r.classes(ctx, claim, &state); err != nil {
		return state, err
	}
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodsByClaim().Name: claim.Name}, client.UnsafeDisableDeepCopy)
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == "" && (state.Waiting == nil || pod.Name < state.Waiting.Name) {
			state.Waiting = pod
		}
	}
	return state, err
}

// candidates adds the volumes that a claim without a volume can be bound to: those that
// name it, of which an interrupted binding may have left one, and the one that it takes
// from the stock, which is returned, nil if it takes none. The stock follows the cache, so
// it is asked first: a volume that is no longer there because it was bound to the claim is
// then found in the cache, and the claim does not get a second one.
func (r *claimReconciler) candidates(ctx context.Context, claim *corev1.PersistentVolumeClaim, state *binding.ClaimState) (*corev1.PersistentVolume, error) {
	if !unbound(claim) {
		return nil, nil
	}
	var taken *corev1.PersistentVolume
	if !binding.Delays(state.Class) {
		taken = r.stock.Take(claim)
	}
	var volumes corev1.PersistentVolumeList
	err := r.client.List(ctx, &volumes, client.MatchingFields{volumesByClaim().Name: claim.Namespace + "/" + claim.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		if taken != nil {
			err = errors.Join(err, r.putBack(ctx, taken))
		}
		return nil, err
	}
	for i := range volumes.Items {
		state.Candidates = append(state.Candidates, &volumes.Items[i])
	}
	if taken != nil {
		state.Candidates = append(state.Candidates, taken)
	}
	return taken, nil
}

// classes reads the class of a claim, or the default one for a claim without a class.
func (r *claimReconciler) classes(ctx context.Context, claim *corev1.PersistentVolumeClaim, state *binding.ClaimState) error {
	if name := volume.GetPersistentVolumeClaimClass(claim); name != "" {
		class := &storagev1.StorageClass{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, class)
		if err == nil {
			state.Class = class
		}
		return client.IgnoreNotFound(err)
	}
	if volume.PersistentVolumeClaimHasClass(claim) {
		return nil
	}
	var list storagev1.StorageClassList
	if err := r.client.List(ctx, &list); err != nil {
		return err
	}
	var classes []*storagev1.StorageClass
	for i := range list.Items {
		classes = append(classes, &list.Items[i])
	}
	state.Default = binding.Default(classes)
	return nil
}

// request sets the class of a claim, or names the provisioner that has to make its
// volume.
func (r *claimReconciler) request(ctx context.Context, claim *corev1.PersistentVolumeClaim, plan binding.ClaimPlan) error {
	return r.patch(ctx, claim, func() {
		if plan.Class != "" {
			claim.Spec.StorageClassName = &plan.Class
		}
		if plan.Provisioner != "" {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBetaStorageProvisioner, plan.Provisioner)
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnStorageProvisioner, plan.Provisioner)
		}
	})
}

// bind writes those parts of a binding that are missing.
func (r *claimReconciler) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	bound, changed, err := volume.GetBindVolumeToClaim(pv, claim)
	if err != nil {
		return err
	}
	if changed {
		if err := r.client.Patch(ctx, bound, client.MergeFromWithOptions(pv, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("bind volume %s to claim %s/%s: %w", pv.Name, claim.Namespace, claim.Name, err)
		}
	}
	if err := r.setVolumePhase(ctx, bound, corev1.VolumeBound, ""); err != nil {
		return err
	}
	_, complete := claim.Annotations[volume.AnnBindCompleted]
	if claim.Spec.VolumeName != pv.Name || !complete {
		err := r.patch(ctx, claim, func() {
			if claim.Spec.VolumeName != pv.Name {
				claim.Spec.VolumeName = pv.Name
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBoundByController, "yes")
			}
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
		})
		if err != nil {
			return err
		}
	}
	return r.setPhase(ctx, claim, corev1.ClaimBound, bound)
}

// patch writes a claim after change has changed it.
func (r *claimReconciler) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func()) error {
	before := claim.DeepCopy()
	change()
	if equal(before, claim) {
		return nil
	}
	if err := r.client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// setPhase writes the status of a claim: of a bound one with what its volume has. The
// capacity and the VolumeAttributesClass of a claim that was bound before may differ from the
// volume's while it is expanded or modified. A server without the feature gate
// VolumeAttributesClass drops the class from volumes and claims.
func (r *claimReconciler) setPhase(ctx context.Context, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, pv *corev1.PersistentVolume) error {
	before := claim.DeepCopy()
	status := &claim.Status
	if pv == nil {
		status.AccessModes, status.Capacity, status.CurrentVolumeAttributesClassName = nil, nil, nil
	} else {
		status.AccessModes = pv.Spec.AccessModes
		if _, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok && status.Phase != phase {
			if status.Capacity == nil {
				status.Capacity = corev1.ResourceList{}
			}
			status.Capacity[corev1.ResourceStorage] = usableSize(ctx, pv)
		}
		if status.Phase == corev1.ClaimPending && phase == corev1.ClaimBound {
			status.CurrentVolumeAttributesClassName = pv.Spec.VolumeAttributesClassName
		}
	}
	status.Phase = phase
	if equal(before.Status, claim.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// preResizeCapacity is the annotation with the capacity that a volume had before it was
// expanded, which its file system still has.
const preResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"

// usableSize returns the capacity of a volume for its claim: that of the file system, which
// the node expands if it is less than the volume's.
func usableSize(ctx context.Context, pv *corev1.PersistentVolume) resource.Quantity {
	text, resized := pv.Annotations[preResizeCapacity]
	if !resized {
		return pv.Spec.Capacity[corev1.ResourceStorage]
	}
	size, err := exponent.Parse(text)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to parse annotation of volume, its capacity is used", "volume", klog.KObj(pv), "annotation", preResizeCapacity, "reason", err.Error())
		return pv.Spec.Capacity[corev1.ResourceStorage]
	}
	return size
}
