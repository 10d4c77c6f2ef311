package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionUpdater writes the condition PodScheduled of pods without a node. It
// writes only the newest reason of each pod, and only changes.
type conditionUpdater struct {
	client client.Client
	now    func() time.Time
	queue  workqueue.TypedRateLimitingInterface[podKey]

	mu      sync.Mutex
	reasons map[podKey]reason
}

// reason is that of the condition PodScheduled.
type reason struct{ reason, message string }

// updaters is the number of conditions that are written at the same time.
const updaters = 4

func newConditionUpdater(c client.Client, clock clock.WithTicker) *conditionUpdater {
	return &conditionUpdater{
		client:  c,
		now:     clock.Now,
		reasons: map[podKey]reason{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[podKey](),
			workqueue.TypedRateLimitingQueueConfig[podKey]{Clock: clock}),
	}
}

// enqueue enqueues an update of the pod's condition.
func (u *conditionUpdater) enqueue(pod *corev1.Pod, why, message string) {
	key := keyOf(pod)
	u.mu.Lock()
	u.reasons[key] = reason{why, message}
	u.mu.Unlock()
	u.queue.Add(key)
}

// run writes the enqueued conditions until ctx is done.
func (u *conditionUpdater) run(ctx context.Context) {
	var running sync.WaitGroup
	for range updaters {
		running.Go(func() {
			for {
				key, stop := u.queue.Get()
				if stop {
					return
				}
				u.process(ctx, key)
				u.queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	u.queue.ShutDown()
	running.Wait()
}

// process writes the condition of one pod, and requeues the pod if that fails.
func (u *conditionUpdater) process(ctx context.Context, key podKey) {
	u.mu.Lock()
	why, ok := u.reasons[key]
	delete(u.reasons, key)
	u.mu.Unlock()
	if !ok || ctx.Err() != nil {
		return
	}
	err := u.write(ctx, key, why)
	if err == nil {
		u.queue.Forget(key)
		return
	}
	if !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to update condition PodScheduled, will retry", "pod", klog.KRef(key.Namespace, key.Name))
	}
	u.mu.Lock()
	if _, newer := u.reasons[key]; !newer {
		u.reasons[key] = why
	}
	u.mu.Unlock()
	u.queue.AddRateLimited(key)
}

// write patches the condition of a pod that has no node. It fails with a conflict
// if the pod has changed since it was read, so that a pod that was bound in between
// does not get the condition.
func (u *conditionUpdater) write(ctx context.Context, key podKey, why reason) error {
	pod := &corev1.Pod{}
	if err := u.client.Get(ctx, key.ObjectKey, pod, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.UID != key.uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	condition, changed := unscheduled(pod, why, u.now())
	if !changed {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	patched := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := u.client.Status().Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("patch the status of pod %s: %w", key.ObjectKey, err))
	}
	return nil
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
