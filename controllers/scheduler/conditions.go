package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// conditionReconciler writes the condition PodScheduled of pods without a node, and the
// node that they are nominated to. It writes only the newest reason of each pod, and
// only changes.
type conditionReconciler struct {
	client  client.Client
	now     func() time.Time
	trigger controller.Trigger[podKey]

	mu sync.Mutex
	// reasons are those that are not written yet.
	reasons map[podKey]reason
}

// podKey identifies a pod by name and UID.
type podKey struct {
	client.ObjectKey
	uid types.UID
}

func keyOf(pod *corev1.Pod) podKey { return podKey{client.ObjectKeyFromObject(pod), pod.UID} }

// reason is that of the condition PodScheduled, with the nominated node.
type reason struct{ reason, message, nominated string }

// conditionWorkers is the number of conditions that are written at the same time.
const conditionWorkers = 4

func newConditionReconciler(c client.Client, now func() time.Time) *conditionReconciler {
	return &conditionReconciler{client: c, now: now, reasons: map[podKey]reason{}}
}

// enqueue requests an update of the pod's condition.
func (r *conditionReconciler) enqueue(pod *corev1.Pod, why reason) {
	key := keyOf(pod)
	r.mu.Lock()
	r.reasons[key] = why
	r.mu.Unlock()
	r.trigger.Enqueue(key)
}

// Reconcile writes the newest reason of a pod.
func (r *conditionReconciler) Reconcile(ctx context.Context, key podKey) (reconcile.Result, error) {
	r.mu.Lock()
	why, ok := r.reasons[key]
	r.mu.Unlock()
	if !ok {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, key, why); err != nil {
		return reconcile.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons[key] == why {
		delete(r.reasons, key)
	}
	return reconcile.Result{}, nil
}

// write patches the condition of a pod that has no node. It fails with a conflict
// if the pod has changed since it was read, so that a pod that was bound in between
// does not get the condition.
func (r *conditionReconciler) write(ctx context.Context, key podKey, why reason) error {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key.ObjectKey, pod, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.UID != key.uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	condition, changed := unscheduled(pod, why, r.now())
	nominates := pod.Status.NominatedNodeName != why.nominated
	if !changed && !nominates {
		return nil
	}
	status := map[string]any{"conditions": []corev1.PodCondition{condition}}
	if nominates {
		status["nominatedNodeName"] = nomination(why.nominated)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return err
	}
	patched := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := r.client.Status().Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update condition PodScheduled of pod %s: %w", key.ObjectKey, err))
	}
	return nil
}

// nomination is the value of nominatedNodeName in a patch: null if there is no node.
func nomination(node string) any {
	if node == "" {
		return nil
	}
	return node
}

// unscheduled returns the condition of a pod without a node, and whether it
// differs from the current one.
func unscheduled(pod *corev1.Pod, why reason, now time.Time) (corev1.PodCondition, bool) {
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: why.reason, Message: why.message,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != condition.Type {
			continue
		}
		condition.LastProbeTime = old.LastProbeTime
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		return condition, condition != old
	}
	return condition, true
}
