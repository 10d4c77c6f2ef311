package devicetainteviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/eviction"
)

// reason is how evictions are reported.
var reason = eviction.Reason{
	Condition: "DeletionByDeviceTaintManager", Message: "Device Taint manager: deleting due to NoExecute taint", Event: "DeviceTaintManagerEviction",
	Marking:    func(types.NamespacedName) string { return "Marking for deletion" },
	Cancelling: func(types.NamespacedName) string { return "Cancelling deletion" },
}

// reconciler reads pods, claims, slices and rules, and deletes pods. It is the only writer
// of the pods' condition DisruptionTarget with the reason DeletionByDeviceTaintManager.
type reconciler struct {
	reader
	evictor  *eviction.Evictor
	now      func() time.Time
	metrics  *evictionMetrics
	statuses *statusReconciler
}

// Reconcile evicts the pod, or requeues it for the time of its eviction.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil {
		r.evictor.Cancel(req.NamespacedName, true)
		return reconcile.Result{}, nil
	}
	claims, err := r.claimsOf(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	taints, err := r.taintsOf(ctx, claims)
	if err != nil {
		return reconcile.Result{}, err
	}
	decided := evict(pod, claims, taints)
	if decided == nil {
		r.evictor.Cancel(req.NamespacedName, false)
		return reconcile.Result{}, nil
	}
	for _, rule := range decided.rules {
		r.statuses.enqueue(rule)
	}
	left, evicted, err := r.evictor.At(ctx, pod, decided.at)
	if evicted {
		r.metrics.observe(r.now().Sub(decided.at))
		for _, rule := range decided.rules {
			r.statuses.add(rule)
		}
	}
	return reconcile.Result{RequeueAfter: left}, err
}
