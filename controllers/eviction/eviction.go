// Package eviction owns the deletion of pods at the time that a controller has decided,
// with the condition and the events by which Kubernetes reports it.
package eviction

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

	"svc.dev/svc/controllers/pods"
)

// Reason is how a controller's evictions are reported.
type Reason struct {
	// Condition and Message are the reason and the message of the condition
	// DisruptionTarget.
	Condition, Message string
	// Event is the reason of the events. Marking and Cancelling return their messages about
	// a pod.
	Event               string
	Marking, Cancelling func(pod types.NamespacedName) string
}

// Evictor evicts pods for one controller. Nothing is lost with it: the controller decides
// again.
type Evictor struct {
	client   client.Client
	recorder record.EventRecorder
	now      func() time.Time
	reason   Reason

	mu sync.Mutex
	// scheduled are the pods with a later eviction. They are kept only for the event of a
	// cancelled eviction.
	scheduled map[types.NamespacedName]types.UID
}

// New returns an evictor.
func New(client client.Client, recorder record.EventRecorder, now func() time.Time, reason Reason) *Evictor {
	return &Evictor{client: client, recorder: recorder, now: now, reason: reason, scheduled: map[types.NamespacedName]types.UID{}}
}

// At evicts a pod if the time has come, and returns how long it is until then otherwise:
// the controller requeues the pod. evicted is false for a pod that was gone already.
func (e *Evictor) At(ctx context.Context, pod *corev1.Pod, at time.Time) (left time.Duration, evicted bool, err error) {
	key := client.ObjectKeyFromObject(pod)
	if left := at.Sub(e.now()); left > 0 {
		e.schedule(key, pod.UID)
		klog.FromContext(ctx).V(4).Info("Scheduled pod eviction", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "after", left)
		return left, false, nil
	}
	if evicted, err = e.evict(ctx, pod); err != nil {
		return 0, false, err
	}
	e.unschedule(key)
	return 0, evicted, nil
}

// evict sets the condition DisruptionTarget and deletes the pod with its grace period.
func (e *Evictor) evict(ctx context.Context, pod *corev1.Pod) (bool, error) {
	klog.FromContext(ctx).V(2).Info("Evicting pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "reason", e.reason.Condition)
	if pods.SetCondition(pod, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: e.reason.Condition, Message: e.reason.Message,
	}, e.now()) {
		if err := e.client.Status().Update(ctx, pod); err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	err := e.client.Delete(ctx, pod, &client.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil // deleted, or another pod has this name
	}
	if err != nil {
		return false, fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	e.recorder.Event(pod, corev1.EventTypeNormal, e.reason.Event, e.reason.Marking(client.ObjectKeyFromObject(pod)))
	return true, nil
}

// Cancel records an event that a pod is not evicted, if its eviction was scheduled and it
// is not being deleted.
func (e *Evictor) Cancel(key types.NamespacedName, deleting bool) {
	uid := e.unschedule(key)
	if uid == "" || deleting {
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
	e.recorder.Event(pod, corev1.EventTypeNormal, e.reason.Event, e.reason.Cancelling(key))
}

// IsScheduled reports whether a pod has a later eviction.
func (e *Evictor) IsScheduled(key types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.scheduled[key]
	return ok
}

func (e *Evictor) schedule(key types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.scheduled[key] = uid
}

// unschedule forgets the scheduled eviction, and returns the UID of its pod, or "".
func (e *Evictor) unschedule(key types.NamespacedName) types.UID {
	e.mu.Lock()
	defer e.mu.Unlock()
	uid := e.scheduled[key]
	delete(e.scheduled, key)
	return uid
}
