package tainteviction

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
	Condition: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint", Event: "TaintManagerEviction",
	Marking:    func(pod types.NamespacedName) string { return "Marking for deletion Pod " + pod.String() },
	Cancelling: func(pod types.NamespacedName) string { return "Cancelling deletion of Pod " + pod.String() },
}

// reconciler reads pods and nodes, and deletes pods. It is the only writer of the
// pods' condition DisruptionTarget with the reason DeletionByTaintManager.
type reconciler struct {
	client  client.Client
	evictor *eviction.Evictor
	taints  taints
}

// Reconcile evicts the pod, or requeues it for the time of its eviction.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		r.evictor.Cancel(req.NamespacedName, pod.DeletionTimestamp != nil)
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // podgc deletes orphaned pods
	}
	at, ok := evictAt(pod, noExecute(node), func(t corev1.Taint) time.Time { return r.taints.added(node.Name, t) })
	if !ok {
		r.evictor.Cancel(req.NamespacedName, false)
		return reconcile.Result{}, nil
	}
	left, _, err := r.evictor.At(ctx, pod, at)
	return reconcile.Result{RequeueAfter: left}, err
}
