package tainteviction

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/pods"
)

// reconciler reads pods and nodes, and deletes pods. It is the only writer of the
// pods' condition DisruptionTarget with the reason DeletionByTaintManager.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	now      func() time.Time
	taints   taints

	mu sync.Mutex
	// scheduled are the pods with a later eviction. They are kept only for the
	// event of a cancelled eviction; every sync decides again.
	scheduled map[types.NamespacedName]types.UID
}

// Reconcile evicts the pod, or requeues it for the time of its eviction.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // podgc deletes orphaned pods
	}
	at, ok := evictAt(pod, noExecute(node), func(t corev1.Taint) time.Time { return r.taints.added(node.Name, t) })
	if !ok {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	if left := at.Sub(r.now()); left > 0 {
		r.schedule(req.NamespacedName, pod.UID)
		klog.FromContext(ctx).V(4).Info("Scheduled pod eviction", "pod", klog.KObj(pod), "node", klog.KObj(node), "after", left)
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := r.evict(ctx, pod); err != nil {
		return reconcile.Result{}, err
	}
	r.unschedule(req.NamespacedName)
	return reconcile.Result{}, nil
}

// evict sets the condition DisruptionTarget and deletes the pod with its grace
// period.
func (r *reconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	klog.FromContext(ctx).V(2).Info("Evicting pod from tainted node", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	if pods.SetCondition(pod, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	}, r.now()) {
		if err := r.client.Status().Update(ctx, pod); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	err := r.client.Delete(ctx, pod, &client.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or another pod has this name
	}
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.recorder.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s", client.ObjectKeyFromObject(pod))
	return nil
}

func (r *reconciler) schedule(key types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scheduled[key] = uid
}

// unschedule forgets the scheduled eviction, and returns the UID of its pod, or "".
func (r *reconciler) unschedule(key types.NamespacedName) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.scheduled[key]
	delete(r.scheduled, key)
	return uid
}

// cancel records an event that the pod is not evicted, if its eviction was
// scheduled.
func (r *reconciler) cancel(key types.NamespacedName, pod *corev1.Pod) {
	uid := r.unschedule(key)
	if uid == "" || pod.DeletionTimestamp != nil {
		return
	}
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
	r.recorder.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
}
