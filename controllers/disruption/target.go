package disruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// staleAfter is how long a pod may be the target of a disruption without being
// deleted. KEP-3329.
const staleAfter = 2 * time.Minute

// targets reads pods; it alone resets their condition DisruptionTarget when the
// disruption that somebody has announced there does not come.
type targets struct {
	client client.Client
	now    func() time.Time
}

// Reconcile resets the condition of a pod when its time is over.
func (t *targets) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := t.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	since := staleSince(pod)
	if since == nil {
		return reconcile.Result{}, nil
	}
	now := t.now()
	if left := since.Add(staleAfter).Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	*condition(pod, corev1.DisruptionTarget) = corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if err := t.client.Status().Update(ctx, pod); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("status of pod %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// staleSince is since when the pod has the condition without having been
// deleted, if that can become stale: a node may take as long as it likes to end
// a pod, and pods that have ended keep the condition as their reason.
func staleSince(pod *corev1.Pod) *time.Time {
	c := condition(pod, corev1.DisruptionTarget)
	switch {
	case c == nil, c.Status != corev1.ConditionTrue, c.Reason == corev1.PodReasonTerminationByKubelet,
		pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil
	}
	return &c.LastTransitionTime.Time
}
