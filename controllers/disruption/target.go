package disruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/podspec"
)

// targets reads pods; it alone resets their condition DisruptionTarget when the
// disruption does not follow.
type targets struct {
	client client.Client
	now    func() time.Time
}

// Reconcile resets the condition of a pod that was not deleted in time.
func (t *targets) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := t.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	since := disruptionTargetSince(pod)
	if since == nil {
		return reconcile.Result{}, nil
	}
	now := t.now()
	if left := since.Add(targetTimeout).Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	*podspec.Condition(&pod.Status, corev1.DisruptionTarget) = corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if err := t.client.Status().Update(ctx, pod); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("update status of pod %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}
