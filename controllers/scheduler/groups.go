package scheduler

import (
	"fmt"
	"math"
	"slices"
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
	c.snapshot.ConsiderGroups()
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
	if group != nil && group.Object != nil && group.Scheduled() >= group.MinCount() && !wasScheduled(group.Object) {
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
		c.snapshot.RemoveGroup(before.Namespace, before.Name)
		c.sync(c.groups.RemoveObject(before)...)
		return
	}
	c.snapshot.SetGroup(after)
	c.sync(c.groups.SetObject(after)...)
	c.report(c.groups.Get(after))
	if before == nil || before.UID != after.UID || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		c.wakeMembers(types.NamespacedName{Namespace: after.Namespace, Name: after.Name})
	}
}

// scheduleGroup decides on the pods of a group that have no node, of which the first was popped. It
// returns the first step, and leaves the others to next.
func (c *core) scheduleGroup(group *gang.Group, first *corev1.Pod) step {
	var steps []*step
	for _, pod := range group.Pending() {
		member := first
		switch {
		case c.releasing.Has(pod.UID):
			continue // when that has ended, the group is decided on again
		case pod.UID != first.UID:
			member = c.queue.Take(pod.UID)
		}
		if member != nil {
			s := c.attempt(member)
			steps = append(steps, &s)
		}
	}
	result := c.decideGroup(group, steps)
	for _, s := range steps[1:] {
		c.decided = append(c.decided, *s)
	}
	next := *steps[0]
	next.group = result
	return next
}

// decideGroup decides on the steps of a group: as many pods get a node as fit, or none if they are
// too few. Those that did not fit besides the others are decided on again, by themselves: they may
// preempt pods.
func (c *core) decideGroup(group *gang.Group, steps []*step) *groupResult {
	if err := group.Validate(group.All()...); err != nil {
		for _, s := range steps {
			s.err = err
		}
		return c.failGroup(group, steps, err)
	}
	var result *groupResult
	placed := func(s *step) bool { return s.assumed != nil }
	for left := steps; len(left) > 0; {
		message, err := c.placeGroup(group, left)
		var last *groupResult
		switch {
		case err != nil:
			last = c.failGroup(group, left, err)
		case message != "":
			last = c.rejectGroup(group, left, message)
		case !slices.ContainsFunc(left, placed):
			last = c.rejectGroup(group, left, gang.Unschedulable)
		default:
			for _, s := range left {
				if placed(s) {
					c.await(*s)
				}
			}
			last = newResult(group, left, reasonScheduled, "")
		}
		if result == nil {
			result = last
		}
		if last.reason != reasonScheduled {
			break
		}
		left = slices.DeleteFunc(slices.Clone(left), placed)
	}
	return result
}

// newResult returns the result of a decision about steps of a group.
func newResult(group *gang.Group, steps []*step, reason, message string) *groupResult {
	return &groupResult{group.Object, steps[0].pod.Spec.SchedulerName, reason, message}
}

// placeGroup places one pod after another, each where it fits besides the others. To which nodes
// these are nominated does not count. The message is why too few of them fit; an error is that one
// could not be decided on. Then none may stay where it is.
func (c *core) placeGroup(group *gang.Group, steps []*step) (message string, err error) {
	minCount, scheduled := group.MinCount(), group.Scheduled()
	if message = gang.Infeasible(minCount, scheduled, len(steps)); message != "" {
		return gang.Unschedulable + ", " + message, nil
	}
	nominated := map[*step]string{}
	for _, s := range steps {
		nominated[s] = c.snapshot.Nominated(s.pod.UID)
		c.snapshot.Nominate(s.pod, "")
	}
	defer func() {
		for s, node := range nominated {
			if s.assumed == nil {
				c.snapshot.Nominate(s.pod, node)
			}
		}
	}()
	for i, s := range steps {
		c.snapshot.Nominate(s.pod, nominated[s])
		d := c.snapshot.Decide(s.pod, c.choose)
		s.err = d.Err
		switch {
		case d.Err != nil:
		case d.Node == "":
			s.message, s.release, s.wokenBy = d.Message(), d.Release, d.WokenBy
			c.snapshot.Nominate(s.pod, "")
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

// rejectGroup withdraws all pods. They wait for what may let one of those fit that did not.
func (c *core) rejectGroup(group *gang.Group, steps []*step, message string) *groupResult {
	fitted := map[*step]bool{}
	for _, s := range steps {
		fitted[s] = s.assumed != nil
	}
	c.withdraw(steps)
	preempts, why := c.preemptForGroup(group, steps)
	whole := message
	if why != "" {
		whole += ", pod group preemption: " + why
	}
	wokenBy := decision.OwnGroupChanged
	for _, s := range steps {
		wokenBy |= s.wokenBy
		switch {
		case fitted[s] && preempts:
			s.message = whole
		case fitted[s]:
			s.message = gang.Unschedulable + ", " + whole
		case s.message == "":
			s.message = message
		}
	}
	for _, s := range steps {
		c.queue.Wait(s.pod.UID, queue.Events(wokenBy), c.groupWait(len(steps)))
	}
	for _, s := range steps {
		c.sendBack(s)
	}
	return newResult(group, steps, schedulingv1beta1.PodGroupReasonUnschedulable, whole)
}

// failGroup withdraws all pods, and retries them after a backoff. Those that did not fail
// themselves say that another one did.
func (c *core) failGroup(group *gang.Group, steps []*step, err error) *groupResult {
	c.withdraw(steps)
	for _, s := range steps {
		if s.err == nil {
			s.err = fmt.Errorf("failed to schedule other pod from a pod group: %w", err)
		}
		c.queue.Retry(s.pod.UID)
	}
	return newResult(group, steps, schedulingv1beta1.PodGroupReasonSchedulerError, err.Error())
}

// withdraw undoes place, the last first. It retries no other pods, as none was decided on in
// between.
func (c *core) withdraw(steps []*step) {
	for _, s := range slices.Backward(steps) {
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

// groupWait is how long so many pods of a group wait at most for an event: as in kube-scheduler,
// where it is the longest backoff of a group. Another order of equally good nodes may let them fit.
func (c *core) groupWait(size int) time.Duration {
	return time.Duration(float64(c.queue.MaxBackoff) * math.Sqrt(float64(size)))
}
