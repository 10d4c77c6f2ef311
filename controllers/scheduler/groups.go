package scheduler

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/gang"
	"svc.dev/svc/controllers/scheduler/queue"
)

// groupsGate lets pods be scheduled as their PodGroup says (KEP-4671).
const groupsGate = "GenericWorkload"

// groupResult is the result of a decision for a PodGroup: its condition
// PodGroupInitiallyScheduled.
type groupResult struct {
	group   *schedulingv1beta1.PodGroup
	profile string
	reason  string
	message string
}

// reasonScheduled is the reason of the condition of a group that is scheduled.
const reasonScheduled = "Scheduled"

// wasScheduled reports whether a group has been scheduled. It stays so, whatever becomes of its
// pods.
func wasScheduled(group *schedulingv1beta1.PodGroup) bool {
	return meta.IsStatusConditionTrue(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
}

// considerGroups makes the core schedule pods as their groups say.
func (c *core) considerGroups() {
	c.groups = gang.New()
	c.queue.Holds = c.groups.Held
}

// setMember records a pod of a group that waits for a node, or has one or is assumed to.
func (c *core) setMember(pod *corev1.Pod) {
	if c.groups != nil {
		c.sync(c.groups.SetPod(pod)...)
		c.sync(pod) // it may have lost its node in a group that is held already
	}
}

// sync gates or activates pods whose group has changed. No place is kept for a pod that is held.
func (c *core) sync(pods ...*corev1.Pod) {
	for _, pod := range pods {
		c.queue.Sync(pod.UID)
		if c.groups.Held(pod) {
			c.unnominate(pod)
		}
	}
}

// memberChanged handles an event of a pod for its group.
func (c *core) memberChanged(before, after *corev1.Pod) {
	switch {
	case after == nil:
		c.sync(c.groups.RemovePod(before)...)
	case podspec.IsTerminal(after.Status.Phase):
		c.sync(c.groups.RemovePod(after)...)
	case after.Spec.NodeName != "":
		c.setMember(after)
		if before == nil || before.Spec.NodeName == "" {
			c.wakeGroup(after)
			c.report(c.groups.Of(after))
		}
	case !c.schedules(after):
		c.sync(c.groups.RemovePod(after)...)
	case c.assumed[after.UID] == nil:
		c.setMember(after)
	}
}

// report makes the loop write that a group is scheduled, in case the scheduler was killed before
// it had done so.
func (c *core) report(group *gang.Group) {
	if group != nil && group.Object != nil && group.Scheduled() >= max(1, group.MinCount()) && !wasScheduled(group.Object) {
		c.scheduled = append(c.scheduled, &groupResult{group: group.Object, reason: reasonScheduled})
	}
}

// wakeGroup retries the pods that wait for the rest of a pod's group.
func (c *core) wakeGroup(of *corev1.Pod) {
	if key, ok := gang.KeyOf(of); ok {
		c.wakeMembers(key)
	}
}

func (c *core) wakeMembers(group types.NamespacedName) {
	c.queue.Wake(queue.Events(decision.OwnGroupChanged), func(pod *corev1.Pod) bool {
		key, ok := gang.KeyOf(pod)
		return ok && key == group
	})
}

// groupChanged handles an event of a PodGroup.
func (c *core) groupChanged(before, after *schedulingv1beta1.PodGroup) {
	if after == nil {
		c.sync(c.groups.RemoveObject(before)...)
		return
	}
	c.sync(c.groups.SetObject(after)...)
	c.report(c.groups.Get(after))
	if before == nil || before.UID != after.UID || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		c.wakeMembers(types.NamespacedName{Namespace: after.Namespace, Name: after.Name})
	}
}

// scheduleMember decides on a pod of a group. If the group is a gang of which not enough pods have
// a node, all that have none are decided on together.
func (c *core) scheduleMember(group *gang.Group, pod *corev1.Pod) step {
	if !group.HasQuorum() {
		return c.scheduleGang(group, pod)
	}
	next := c.attempt(pod)
	if err := group.Validate(pod); err != nil {
		next = c.retry(next, err)
	} else {
		next = c.schedule(next)
	}
	next.group = &groupResult{group: group.Object, profile: pod.Spec.SchedulerName}
	switch r := next.group; {
	case next.err != nil:
		r.reason, r.message = schedulingv1beta1.PodGroupReasonSchedulerError, next.err.Error()
	case next.assumed != nil:
		r.reason = reasonScheduled
	default:
		r.reason, r.message = schedulingv1beta1.PodGroupReasonUnschedulable, gang.Infeasible(1, 0, 0)
	}
	return next
}

// scheduleGang decides on the pods of a gang that have no node, of which the first was popped: as
// many get one as fit, or none if they were too few. It returns the first step, and leaves the
// others to next.
func (c *core) scheduleGang(group *gang.Group, first *corev1.Pod) step {
	var steps []step
	for _, pod := range group.Pending() {
		if pod.UID == first.UID {
			steps = append(steps, c.attempt(first))
		} else if member := c.queue.Take(pod.UID); member != nil {
			steps = append(steps, c.attempt(member))
		}
	}
	result := c.decideGang(group, steps)
	steps[0].group = result
	c.decided = steps[1:]
	return steps[0]
}

// decideGang decides on the steps of a gang.
func (c *core) decideGang(group *gang.Group, steps []step) *groupResult {
	if err := group.Validate(group.All()...); err != nil {
		for i := range steps {
			steps[i].err = err
		}
		return c.failGang(group, steps, err)
	}
	switch message, err := c.placeGang(group.MinCount(), group.Scheduled(), steps); {
	case err != nil:
		return c.failGang(group, steps, err)
	case message != "":
		return c.rejectGang(group, steps, message)
	}
	return c.commitGang(group, steps)
}

// placeGang places one pod after another, each where it fits besides the others. The message is
// why too few of them fit; an error is that one could not be decided on. Then none may stay
// where it is.
func (c *core) placeGang(minCount, scheduled int, steps []step) (message string, err error) {
	for i := range steps {
		s := &steps[i]
		d := c.snapshot.Decide(s.pod, c.choose)
		s.err = d.Err
		switch {
		case d.Err != nil:
		case d.Node == "":
			s.message, s.release, s.wokenBy = d.Message(), d.Release, d.WokenBy
		default:
			if *s, s.err = c.place(*s, &d); s.err == nil {
				scheduled++
			}
		}
		if s.err != nil {
			return "", s.err
		}
		if message = gang.Infeasible(minCount, scheduled, len(steps)-i-1); message != "" {
			return message, nil
		}
	}
	return "", nil
}

// commitGang lets the pods that are placed be bound. The others are decided on each by itself.
func (c *core) commitGang(group *gang.Group, steps []step) *groupResult {
	for _, s := range steps {
		if s.assumed != nil {
			c.await(s)
		}
	}
	for i, s := range steps {
		if s.assumed == nil {
			steps[i] = c.schedule(c.attempt(s.pod))
		}
	}
	return &groupResult{group.Object, steps[0].pod.Spec.SchedulerName, reasonScheduled, ""}
}

// rejectGang withdraws all pods. They wait for what may let one of those fit that did not.
func (c *core) rejectGang(group *gang.Group, steps []step, message string) *groupResult {
	c.withdraw(steps)
	if why := c.preemptForGang(group, steps); why != "" {
		message += ", pod group preemption: " + why
	}
	wokenBy := decision.OwnGroupChanged
	for i := range steps {
		wokenBy |= steps[i].wokenBy
		if steps[i].message == "" {
			steps[i].message = message
		}
	}
	for _, s := range steps {
		c.queue.Wait(s.pod.UID, queue.Events(wokenBy), c.gangWait(len(steps)))
	}
	return &groupResult{group.Object, steps[0].pod.Spec.SchedulerName, schedulingv1beta1.PodGroupReasonUnschedulable, message}
}

// failGang withdraws all pods, and retries them after a backoff. Those that did not fail
// themselves say that another one did.
func (c *core) failGang(group *gang.Group, steps []step, err error) *groupResult {
	c.withdraw(steps)
	for i, s := range steps {
		if s.err == nil {
			steps[i].err = fmt.Errorf("failed to schedule other pod from a pod group: %w", err)
		}
		c.queue.Retry(s.pod.UID)
	}
	return &groupResult{group.Object, steps[0].pod.Spec.SchedulerName, schedulingv1beta1.PodGroupReasonSchedulerError, err.Error()}
}

// withdraw undoes place, the last first. It retries no other pods, as none was decided on in
// between.
func (c *core) withdraw(steps []step) {
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if s.assumed == nil {
			continue
		}
		uid := s.pod.UID
		delete(c.assumed, uid)
		delete(c.binding, uid)
		c.snapshot.RemovePod(s.assumed)
		c.snapshot.ForgetClaims(s.assumed)
		if c.writing[uid] == 0 {
			c.snapshot.ForgetDevices(uid)
		}
		c.snapshot.Nominate(s.pod, s.nominated)
		c.setMember(s.pod)
		*s = step{pod: s.pod, attempts: s.attempts, first: s.first}
	}
}

// gangWait is how long a gang of a size waits at most for an event: as in kube-scheduler, where
// it is the longest backoff of a gang. Another order of equally good nodes may let the gang fit.
func (c *core) gangWait(size int) time.Duration {
	return time.Duration(float64(c.queue.MaxBackoff) * math.Sqrt(float64(size)))
}
