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

// reporter writes into the condition PodScheduled why pods have no node. Of
// each pod it writes the newest reason only, and nothing that is there already.
type reporter struct {
	client client.Client
	now    func() time.Time
	queue  workqueue.TypedRateLimitingInterface[podKey]

	mu      sync.Mutex
	reasons map[podKey]reason
}

// reason is why a pod has no node.
type reason struct{ reason, message string }

// reporters is how many conditions are written at the same time.
const reporters = 4

func newReporter(c client.Client, clock clock.WithTicker) *reporter {
	return &reporter{
		client:  c,
		now:     clock.Now,
		reasons: map[podKey]reason{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[podKey](),
			workqueue.TypedRateLimitingQueueConfig[podKey]{Clock: clock}),
	}
}

// report has the reason written soon.
func (r *reporter) report(pod *corev1.Pod, why, message string) {
	key := keyOf(pod)
	r.mu.Lock()
	r.reasons[key] = reason{why, message}
	r.mu.Unlock()
	r.queue.Add(key)
}

// run writes until ctx is done.
func (r *reporter) run(ctx context.Context) {
	var running sync.WaitGroup
	for range reporters {
		running.Go(func() {
			for {
				key, stop := r.queue.Get()
				if stop {
					return
				}
				r.process(ctx, key)
				r.queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
}

// process writes the reason of one pod, and has it tried again if that fails.
func (r *reporter) process(ctx context.Context, key podKey) {
	r.mu.Lock()
	why, ok := r.reasons[key]
	delete(r.reasons, key)
	r.mu.Unlock()
	if !ok || ctx.Err() != nil {
		return
	}
	err := r.write(ctx, key, why)
	if err == nil {
		r.queue.Forget(key)
		return
	}
	if !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The condition PodScheduled could not be written and is tried again", "pod", klog.KRef(key.Namespace, key.Name))
	}
	r.mu.Lock()
	if _, newer := r.reasons[key]; !newer {
		r.reasons[key] = why
	}
	r.mu.Unlock()
	r.queue.AddRateLimited(key)
}

// write patches the condition of a pod that still has no node. It fails with a
// conflict if that is no longer the newest version of the pod: it never says
// that a pod has no node which has got one meanwhile.
func (r *reporter) write(ctx context.Context, key podKey, why reason) error {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key.ObjectKey, pod, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.UID != key.uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	condition, changed := unscheduled(pod, why, r.now())
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
	if err := r.client.Status().Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("patch the status of pod %s: %w", key.ObjectKey, err))
	}
	return nil
}

// unscheduled is the condition of a pod that has no node, and whether that is
// new.
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
