package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/scheduler/decision"
)

// preempt decides on the preemption for a pod that fits no node, and nominates it.
func (c *core) preempt(pod *corev1.Pod, d *decision.Decision) decision.Preemption {
	p := c.snapshot.Preempt(pod, d, c.choose)
	switch {
	case p.Node != "":
		c.preempts(pod, p)
	case p.Clear:
		c.unnominate(pod)
	}
	return p
}

// preempts records a preemption: the place of the victims is the pod's.
func (c *core) preempts(pod *corev1.Pod, p decision.Preemption) {
	c.snapshot.Nominate(pod, p.Node)
	for _, victim := range p.Victims {
		c.snapshot.Preempted(victim.UID, true)
	}
	for _, other := range p.Displaced {
		c.snapshot.Nominate(other, "")
	}
}

// sendBack retries the victims of a step that wait on their node for claims or devices: they are not
// bound yet, so there is no need to delete them. The pods that their places are for wait already.
func (c *core) sendBack(s *step) {
	var left []*corev1.Pod
	for _, victim := range s.preemption.Victims {
		if c.assumed[victim.UID] == nil || !c.queue.Has(victim.UID) { // it has its node, or is being bound
			left = append(left, victim)
			continue
		}
		c.forget(victim.UID)
		c.queue.Retry(victim.UID)
		s.returned = append(s.returned, victim)
	}
	s.preemption.Victims = left
}

// errPreemptorGone means that no victim was deleted, as the pod that preempts them was
// deleted, or replaced by another of its name, or has a node.
var errPreemptorGone = errors.New("the pod needs no node any more")

// preemptionFailed keeps the victims, which could not all be deleted, and retries the pod
// if it still exists. It keeps its nomination.
func (c *core) preemptionFailed(s step, err error) {
	for _, victim := range s.preemption.Victims {
		c.snapshot.Preempted(victim.UID, false)
	}
	if c.assumed[s.pod.UID] == nil && !errors.Is(err, errPreemptorGone) {
		c.queue.Retry(s.pod.UID)
	}
}

// nominate updates the nomination of a pod without a node. Its status decides if it has
// changed; else it may be older than the last decision. A pod that is held since that decision
// gets none; that of a pod which the scheduler has just found stays for when its group is complete.
func (c *core) nominate(before, after *corev1.Pod) {
	node := after.Status.NominatedNodeName
	switch {
	case c.assumed[after.UID] != nil:
		return
	case before != nil && c.groups != nil && c.groups.Held(after):
		node = ""
	case before != nil && before.Status.NominatedNodeName == node:
		node = c.snapshot.Nominated(after.UID)
	}
	if node == "" {
		c.unnominate(after)
		return
	}
	c.snapshot.Nominate(after, node)
}

// unnominate removes the nomination of a pod, if it has one, and retries the pods for
// which its place was not free.
func (c *core) unnominate(pod *corev1.Pod) {
	if c.snapshot.Nominated(pod.UID) != "" {
		c.snapshot.Nominate(pod, "")
		c.wake(decision.PodGone)
	}
}

// preempt starts the preemption that a step decided on. It does not block.
func (l *loop) preempt(ctx context.Context, s step) {
	klog.FromContext(ctx).V(2).Info("Preempting pods", "pod", klog.KObj(s.pod), "node", s.preemption.Node, "victims", len(s.preemption.Victims))
	if n := len(s.preemption.Victims) + len(s.returned); n > 0 { // a pod of a gang may have none itself
		l.metrics.preempted(n)
	}
	for _, victim := range s.returned {
		l.events.enqueue(victim, s.pod.Spec.SchedulerName, corev1.EventTypeNormal, "Preempted", s.preempted()+" (in kube-scheduler memory).")
	}
	l.binding.Add(1)
	l.running.Go(func() {
		err := l.preemptor.preempt(ctx, s, func(victim *corev1.Pod) {
			l.events.enqueue(victim, s.pod.Spec.SchedulerName, corev1.EventTypeNormal, "Preempted", s.preempted())
		})
		l.post(ctx, func() {
			l.binding.Add(-1)
			if err == nil {
				return
			}
			if !errors.Is(err, errPreemptorGone) {
				klog.FromContext(ctx).Error(err, "Failed to preempt pods, will retry", "pod", klog.KObj(s.pod), "node", s.preemption.Node)
			}
			l.core.preemptionFailed(s, err)
		})
	})
}

// preempted returns what the event of a victim says.
func (s step) preempted() string {
	if s.preemptor != nil {
		return fmt.Sprintf("Preempted by podgroup %s on node cluster", s.preemptor.UID)
	}
	return fmt.Sprintf("Preempted by pod %s on node %s", s.pod.UID, s.preemption.Node)
}

// preempting returns what the condition DisruptionTarget of a victim says.
func (s step) preempting() string {
	kind := "pod"
	if s.preemptor != nil {
		kind = "podgroup"
	}
	return fmt.Sprintf("%s: preempting to accommodate a higher priority %s", s.pod.Spec.SchedulerName, kind)
}

// preemptor executes preemptions.
type preemptor struct {
	client client.Client
	now    func() time.Time
}

// maxDeleting is the number of victims that are deleted at the same time.
const maxDeleting = 16

// preempt nominates the pod and deletes its victims. The nomination is written first:
// a scheduler that is killed in between continues on the same node. deleted is called
// for each victim that was deleted. The error is errPreemptorGone if the pod needs no node.
func (p *preemptor) preempt(ctx context.Context, s step, deleted func(*corev1.Pod)) error {
	if err := nominate(ctx, p.client, s.pod, s.preemption.Node); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return errPreemptorGone
		}
		return err
	}
	for _, other := range s.preemption.Displaced {
		if err := nominate(ctx, p.client, other, ""); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	failures := make([]error, len(s.preemption.Victims))
	var running sync.WaitGroup
	slots := make(chan struct{}, maxDeleting)
	for i, victim := range s.preemption.Victims {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			var done bool
			if done, failures[i] = p.delete(ctx, s.preempting(), victim); done {
				deleted(victim)
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}

// nominate writes status.nominatedNodeName. It fails with a conflict if another pod has
// the name.
func nominate(ctx context.Context, c client.Client, pod *corev1.Pod, node string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"nominatedNodeName": nomination(node)},
	})
	if err != nil {
		return err
	}
	if err := c.Status().Patch(ctx, named(pod), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("nominate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// delete sets the condition DisruptionTarget of a victim, with a message, and deletes it with its
// grace period. It reports whether it has: a victim that is being deleted already, or was, needs
// neither.
func (p *preemptor) delete(ctx context.Context, message string, victim *corev1.Pod) (bool, error) {
	if victim.DeletionTimestamp != nil {
		return false, nil
	}
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message:            message,
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.NewTime(p.now()),
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": victim.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return false, err
	}
	err = p.client.Status().Patch(ctx, named(victim), client.RawPatch(types.StrategicMergePatchType, patch))
	if err == nil {
		err = p.client.Delete(ctx, named(victim), client.Preconditions{UID: &victim.UID})
	}
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	}
	return false, fmt.Errorf("preempt pod %s/%s: %w", victim.Namespace, victim.Name, err)
}

// named returns an object with the pod's name only, to be read into.
func named(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}
