package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// groupReconciler writes the condition PodGroupInitiallyScheduled of PodGroups. It writes only the
// newest result of each, and only changes. A group that has been scheduled stays so.
type groupReconciler struct {
	client  client.Client
	now     func() time.Time
	trigger controller.Trigger[client.ObjectKey]

	mu sync.Mutex
	// results are those that are not written yet.
	results map[client.ObjectKey]*groupResult
}

func newGroupReconciler(c client.Client, now func() time.Time) *groupReconciler {
	return &groupReconciler{client: c, now: now, results: map[client.ObjectKey]*groupResult{}}
}

// enqueue requests an update of the group's condition.
func (r *groupReconciler) enqueue(result *groupResult) {
	if wasScheduled(result.group) {
		return
	}
	key := client.ObjectKeyFromObject(result.group)
	r.mu.Lock()
	if earlier := r.results[key]; earlier == nil || earlier.reason != reasonScheduled || earlier.group.UID != result.group.UID {
		r.results[key] = result
	}
	r.mu.Unlock()
	r.trigger.Enqueue(key)
}

// Reconcile writes the newest result of a group.
func (r *groupReconciler) Reconcile(ctx context.Context, key client.ObjectKey) (reconcile.Result, error) {
	r.mu.Lock()
	result := r.results[key]
	r.mu.Unlock()
	if result == nil {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, key, result); err != nil {
		return reconcile.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results[key] == result {
		delete(r.results, key)
	}
	return reconcile.Result{}, nil
}

// write patches the condition. It fails with a conflict if the group has changed since it was
// read, so that no older result replaces that of another scheduler.
func (r *groupReconciler) write(ctx context.Context, key client.ObjectKey, result *groupResult) error {
	group := &schedulingv1beta1.PodGroup{}
	if err := r.client.Get(ctx, key, group); err != nil {
		return client.IgnoreNotFound(err)
	}
	if group.UID != result.group.UID || wasScheduled(group) {
		return nil
	}
	status := metav1.ConditionFalse
	if result.reason == reasonScheduled {
		status = metav1.ConditionTrue
	}
	if !meta.SetStatusCondition(&group.Status.Conditions, metav1.Condition{
		Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: result.reason, Message: result.message,
		ObservedGeneration: result.group.Generation, LastTransitionTime: metav1.NewTime(r.now()),
	}) {
		return nil
	}
	condition := meta.FindStatusCondition(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": group.UID, "resourceVersion": group.ResourceVersion},
		"status":   map[string]any{"conditions": []metav1.Condition{*condition}},
	})
	if err != nil {
		return err
	}
	patched := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := r.client.Status().Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update condition %s of pod group %s: %w", condition.Type, key, err))
	}
	return nil
}
