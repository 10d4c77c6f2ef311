package pvcprotection

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// unusedGate is the feature gate of the condition Unused (KEP-5541).
const unusedGate = "PersistentVolumeClaimUnusedSinceTime"

// unusedReconciler reads persistent volume claims and pods. It is the only writer of the
// claims' condition Unused, whose last transition is when the last pod ended or the first
// one came.
type unusedReconciler struct {
	client client.Client
	now    func() time.Time
}

// Reconcile updates the condition of a claim.
func (r *unusedReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	// Claims that are not bound are written by those that bind them.
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodsByClaim().Name: claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	used := slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return refersTo(&pod, claim) })
	before := claim.DeepCopy()
	if !setUnused(claim, used, r.now()) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("condition Unused of claim %s: %w", req, err))
	}
	return reconcile.Result{}, nil
}

// ended reports whether a pod uses its claims no longer: it has terminated, or is being deleted
// and none of its containers runs.
func ended(pod *corev1.Pod) bool {
	return pods.IsTerminal(pod) || pod.DeletionTimestamp != nil && pods.NothingRuns(pod)
}

// refersTo reports whether a pod that has not ended refers to the claim, on a node or not.
func refersTo(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !ended(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
			v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, &v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil
	})
}

// unused returns the condition of a claim, nil if it has none.
func unused(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	i := slices.IndexFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimUnused
	})
	if i < 0 {
		return nil
	}
	return &claim.Status.Conditions[i]
}

// setUnused sets the condition, and reports whether that changes it.
func setUnused(claim *corev1.PersistentVolumeClaim, used bool, now time.Time) bool {
	c := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if used {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	switch existing := unused(claim); {
	case existing == nil:
		claim.Status.Conditions = append(claim.Status.Conditions, c)
	case existing.Status == c.Status:
		return false
	default:
		*existing = c
	}
	return true
}

// unsaid passes the events of claims without the condition and, as pods may have come and
// gone while no controller ran, each claim once.
var unsaid = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return unused(e.ObjectNew.(*corev1.PersistentVolumeClaim)) == nil }}

// runUnused runs the reconciler: for these claims, and those of pods that are created, end
// or are deleted.
func runUnused(env *controller.Env) error {
	enqueue := func(q controller.Queue[reconcile.Request], obj client.Object) {
		for _, claim := range index.PodsByClaim().Values(obj) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: claim}})
		}
	}
	return controller.Run(env, controller.Options{Name: "pvcprotection-unused", Workers: workers}, &unusedReconciler{env.Client, env.Clock.Now},
		controller.For(&corev1.PersistentVolumeClaim{}, unsaid),
		controller.Watch[reconcile.Request]{Object: &corev1.Pod{}, Handler: handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
				enqueue(q, e.Object)
			},
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
				before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				if before.UID != after.UID || ended(before) != ended(after) {
					enqueue(q, before)
					enqueue(q, after)
				}
			},
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[reconcile.Request]) {
				enqueue(q, e.Object)
			},
		}})
}
