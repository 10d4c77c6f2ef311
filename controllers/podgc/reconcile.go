package podgc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// request names a pod, or a node whose pods are checked because it does not exist
// or is out of service. The zero request checks the number of terminated pods.
type request struct {
	pod  types.NamespacedName
	node string
}

// reconciler reads pods and nodes. It sets the phase of pods that it deletes
// before they have terminated to Failed. It is the only writer of the condition
// DisruptionTarget with the reason DeletionByPodGC.
type reconciler struct {
	client     client.Client
	live       client.Reader
	now        func() time.Time
	threshold  int
	quarantine time.Duration

	mu      sync.Mutex
	missing map[string]time.Time // when each missing node was first missed
}

// Reconcile deletes those pods of the request that are garbage.
func (r *reconciler) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	switch {
	case req.pod.Name != "":
		return reconcile.Result{}, r.reconcilePod(ctx, req.pod)
	case req.node != "":
		after, err := r.reconcileNode(ctx, req.node)
		return reconcile.Result{RequeueAfter: after}, err
	default:
		return reconcile.Result{}, r.reconcileTerminated(ctx)
	}
}

func (r *reconciler) reconcilePod(ctx context.Context, key types.NamespacedName) error {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	var node *corev1.Node
	if pod.Spec.NodeName != "" {
		node = &corev1.Node{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !garbage(pod, node) {
		return nil
	}
	return r.delete(ctx, pod, nil)
}

// reconcileNode deletes all pods of a node that has not existed for the
// quarantine, and the terminating pods of a node that is out of service. It
// returns the time after which to requeue the node.
func (r *reconciler) reconcileNode(ctx context.Context, name string) (time.Duration, error) {
	var bound corev1.PodList
	if err := r.client.List(ctx, &bound, client.MatchingFields{index.PodsByNode().Name: name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err == nil || len(bound.Items) == 0 {
		r.found(name)
		return 0, r.deleteAll(ctx, bound.Items, nil, func(pod *corev1.Pod) bool { return garbage(pod, node) })
	}
	if left := r.missingSince(name).Add(r.quarantine).Sub(r.now()); left > 0 {
		return left, nil
	}
	// The node may be missing in the cache only.
	err = r.live.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("node %s: %w", name, err)
	}
	if err == nil {
		r.found(name)
		return r.quarantine, nil
	}
	if err := r.deleteAll(ctx, bound.Items, nodeGone(), func(*corev1.Pod) bool { return true }); err != nil {
		return 0, err
	}
	r.found(name)
	return 0, nil
}

// deleteAll deletes those of the pods, which belong to the cache, that are garbage.
func (r *reconciler) deleteAll(ctx context.Context, all []corev1.Pod, why *corev1.PodCondition, garbage func(*corev1.Pod) bool) error {
	var errs []error
	for i := range all {
		if garbage(&all[i]) {
			errs = append(errs, r.delete(ctx, all[i].DeepCopy(), why))
		}
	}
	return errors.Join(errs...)
}

// nodeGone is the condition of orphaned pods.
func nodeGone() *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
	}
}

// missingSince records that the node is missing, and returns since when.
func (r *reconciler) missingSince(node string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.missing[node]
	if !ok {
		since = r.now()
		r.missing[node] = since
	}
	return since
}

// found records that the node is no longer missing.
func (r *reconciler) found(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, node)
}

func (r *reconciler) reconcileTerminated(ctx context.Context) error {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.MatchingFields{terminatedIndex().Name: terminated}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	candidates := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		candidates[i] = &list.Items[i]
	}
	var errs []error
	for _, pod := range excess(candidates, r.threshold) {
		errs = append(errs, r.delete(ctx, pod.DeepCopy(), nil))
	}
	return errors.Join(errs...)
}

// delete deletes the pod with a grace period of 0, so that no node agent has to
// confirm it. If the pod has not terminated, it first sets its phase to Failed
// and adds the condition why, if that is not nil.
func (r *reconciler) delete(ctx context.Context, pod *corev1.Pod, why *corev1.PodCondition) error {
	klog.FromContext(ctx).V(2).Info("Force deleting pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "phase", pod.Status.Phase)
	if !pods.IsTerminal(pod) {
		pod.Status.Phase, pod.Status.ObservedGeneration = corev1.PodFailed, pod.Generation
		if why != nil {
			pods.SetCondition(pod, *why, r.now())
		}
		if err := r.client.Status().Update(ctx, pod); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	err := r.client.Delete(ctx, pod, &client.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsConflict(err) {
		return nil // another pod has this name now
	}
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return nil
}
