package scheduler

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/scheduler/configfile"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/gang"
	"svc.dev/svc/controllers/scheduler/queue"
)

// core is the scheduler's state and decisions, without a client, a clock or a
// goroutine: events go in, and next returns what to do. Only extenders, if there are
// any, are asked in between.
type core struct {
	// names are the spec.schedulerName of the pods that it schedules.
	names    sets.Set[string]
	snapshot *decision.Snapshot
	queue    *queue.Queue
	choose   func(n int) int
	now      func() time.Time

	// assumed are the pods that next has assigned to a node, until a watch confirms
	// the binding or failed reverts it. The snapshot has them. In the queue they are
	// in flight, or wait for their claims.
	assumed map[types.UID]*corev1.Pod
	// binding are the assumed pods that wait for their claims.
	binding map[types.UID]binding
	// writing are the numbers of steps of a pod whose devices are being written.
	writing map[types.UID]int
	// releasing are the pods whose resource claims are being given back.
	releasing sets.Set[types.UID]

	// groups are nil if pods are scheduled without regard to their groups. decided are
	// the steps that next returns before it decides again, and scheduled are groups to report
	// as such.
	groups    *gang.Groups
	decided   []step
	scheduled []*groupResult
}

// binding is the wait of a pod for its claims.
type binding struct {
	since time.Time
	// refused is a claim for which the provisioner has given up the node, if there is one.
	refused string
}

// step is what to do for a pod: bind its claims, if there are any, or bind it to the
// node that it is assumed on; or report why it is unschedulable, or was not decided on.
type step struct {
	pod *corev1.Pod
	// attempts counts this step and the pod's earlier ones, the first of which was
	// taken at the time first.
	attempts int
	first    time.Time
	assumed  *corev1.Pod
	claims   []decision.ClaimDecision
	devices  []decision.DeviceDecision
	// extended is what to write into the pod's status when the devices are written; nil
	// leaves it as it is.
	extended *decision.ExtendedStatus
	// waits is set if the pod must not be bound before its devices are ready. within is how
	// long it waits for them and its claims.
	waits  bool
	within time.Duration
	// nominated is the node that the pod was nominated to before.
	nominated string
	// release is the name of a resource claim to deallocate, or to delete if it is that for
	// extended resources, for a pod without a node.
	release string
	// message is the reason why no node fits, wokenBy are the events after which one may, if
	// the pod was decided on with others, and preemption is what is done about it: for the
	// group preemptor, or for the pod if it is nil.
	message    string
	wokenBy    decision.Event
	preemption decision.Preemption
	preemptor  *schedulingv1beta1.PodGroup
	// returned are the victims that were not bound yet and are scheduled again.
	returned []*corev1.Pod
	// err is why there is no decision; the pod is retried.
	err error
	// group is the result for the pod's group, in the first step of those that were decided
	// on together; nil if there is none to report.
	group *groupResult
}

func (s step) node() string { return s.assumed.Spec.NodeName }

// newCore returns a core with an empty snapshot and queue.
func newCore(config *configfile.Config, now func() time.Time, choose func(n int) int) *core {
	c := &core{
		names:    sets.Set[string]{},
		snapshot: decision.NewSnapshot(),
		queue:    queue.New(now),
		choose:   choose,
		now:      now,
		assumed:  map[types.UID]*corev1.Pod{},
		binding:  map[types.UID]binding{},
		writing:  map[types.UID]int{},

		releasing: sets.Set[types.UID]{},
	}
	for _, profile := range config.Profiles {
		c.names.Insert(profile.SchedulerName)
	}
	c.snapshot.SetProfiles(config.Profiles...)
	c.queue.InitialBackoff, c.queue.MaxBackoff = config.InitialBackoff, config.MaxBackoff
	return c
}

// next schedules the next pod of the queue, or returns the next step of a group that has been
// decided on; false means that there is none.
func (c *core) next() (step, bool) {
	if len(c.decided) > 0 {
		next := c.decided[0]
		c.decided = c.decided[1:]
		return next, true
	}
	pod := c.queue.Pop()
	for pod != nil && c.releasing.Has(pod.UID) { // released retries it
		pod = c.queue.Pop()
	}
	if pod == nil {
		return step{}, false
	}
	if c.groups != nil && c.assumed[pod.UID] == nil {
		if group := c.groups.Of(pod); group != nil {
			return c.scheduleGroup(group, pod), true
		}
	}
	return c.schedule(c.attempt(pod)), true
}

// attempt returns the step of a pod that was popped.
func (c *core) attempt(pod *corev1.Pod) step {
	s := step{pod: pod}
	s.attempts, s.first = c.queue.Attempts(pod.UID)
	return s
}

// schedule decides on a pod.
func (c *core) schedule(next step) step {
	pod := next.pod
	if claim := c.binding[pod.UID].refused; claim != "" {
		return c.retry(next, fmt.Errorf("binding volumes: provisioning failed for PVC %q", claim))
	}
	before := c.assumed[pod.UID]
	if before != nil {
		c.snapshot.RemovePod(before)
	}
	d := c.snapshot.Decide(pod, c.choose)
	if d.Err != nil {
		return c.retry(next, d.Err)
	}
	if d.Node == "" {
		c.forget(pod.UID)
		c.queue.Wait(pod.UID, queue.Events(d.WokenBy), queue.MaxWait)
		next.message, next.release = d.Message(), d.Release
		if d.Nodes > 0 {
			next.preemption = c.preempt(pod, &d)
			c.sendBack(&next)
		}
		if why := next.preemption.Message; why != "" {
			next.message += " preemption: " + why
		}
		return next
	}
	next, err := c.place(next, &d)
	if err != nil {
		return c.retry(next, err)
	}
	if before != nil && before.Spec.NodeName != d.Node {
		c.wake(decision.PodGone)
	}
	c.await(next)
	return next
}

// retry ends a step with an error. The pod is retried after a backoff.
func (c *core) retry(s step, err error) step {
	c.forget(s.pod.UID)
	c.queue.Retry(s.pod.UID)
	s.err = err
	return s
}

// failed reverts a step that failed. The pod is retried, unless it has been
// scheduled again or needs no node any more.
func (c *core) failed(s step) {
	if c.assumed[s.pod.UID] == s.assumed && c.forget(s.pod.UID) {
		c.queue.Retry(s.pod.UID)
		if pod := c.queue.Get(s.pod.UID); pod != nil {
			c.snapshot.Nominate(pod, s.nominated)
		}
	}
}

// writes records that the devices of a step are being written: until wrote, they are not free,
// even if the pod is deleted meanwhile.
func (c *core) writes(s step) {
	if len(s.devices) > 0 {
		c.writing[s.pod.UID]++
	}
}

// wrote records that the devices of a step have been written, or could not be.
func (c *core) wrote(s step) {
	uid := s.pod.UID
	if len(s.devices) == 0 {
		return
	}
	if c.writing[uid]--; c.writing[uid] > 0 {
		return
	}
	delete(c.writing, uid)
	if c.assumed[uid] == nil {
		c.forgetDevices(uid)
	}
}

// forgetDevices ends the assumptions about a pod's devices, unless they are being written.
func (c *core) forgetDevices(uid types.UID) {
	if c.writing[uid] == 0 && c.snapshot.ForgetDevices(uid) {
		c.wake(decision.DevicesChanged)
	}
}

// forget removes an assumed pod, and reports whether the pod was assumed.
func (c *core) forget(uid types.UID) bool {
	assumed := c.assumed[uid]
	if assumed == nil {
		return false
	}
	delete(c.assumed, uid)
	delete(c.binding, uid)
	c.snapshot.RemovePod(assumed)
	if pod := c.queue.Get(uid); pod != nil {
		c.setMember(pod)
	}
	c.wake(decision.PodGone)
	if c.snapshot.ForgetClaims(assumed) {
		c.wake(decision.ClaimChanged | decision.VolumeChanged)
	}
	c.forgetDevices(uid)
	return true
}

// podChanged handles an event of a pod: before is nil for a new pod, after for a
// deleted one.
func (c *core) podChanged(before, after *corev1.Pod) {
	if before != nil && after != nil && before.UID != after.UID {
		c.podChanged(before, nil)
		before = nil
	}
	if c.groups != nil {
		c.memberChanged(before, after)
	}
	switch {
	case after == nil:
		c.queue.Remove(before.UID)
		c.unnominate(before)
		if !c.forget(before.UID) {
			c.snapshot.RemovePod(before)
			c.wake(decision.PodEvents(before, nil))
		}
	case after.Spec.NodeName != "":
		c.podBound(before, after)
	case c.schedules(after):
		c.queue.Set(after)
		c.nominate(before, after)
	default:
		c.queue.Remove(after.UID)
		c.unnominate(after)
		c.forget(after.UID)
	}
}

// podBound handles an event of a pod with a node, which confirms an assumed pod.
func (c *core) podBound(before, pod *corev1.Pod) {
	c.queue.Remove(pod.UID)
	c.snapshot.Nominate(pod, "")
	if assumed := c.assumed[pod.UID]; assumed != nil && assumed.Spec.NodeName != pod.Spec.NodeName {
		c.forget(pod.UID) // another scheduler has bound it
	}
	delete(c.assumed, pod.UID)
	delete(c.binding, pod.UID)
	if c.snapshot.ForgetClaims(pod) {
		c.wake(decision.ClaimChanged | decision.VolumeChanged)
	}
	c.snapshot.SetPod(pod)
	c.wake(decision.PodEvents(before, pod))
}

// schedules reports whether this scheduler schedules a pod that has no node.
func (c *core) schedules(pod *corev1.Pod) bool {
	return c.names.Has(pod.Spec.SchedulerName) && pod.DeletionTimestamp == nil &&
		!podspec.IsTerminal(pod.Status.Phase)
}

func (c *core) nodeChanged(before, after *corev1.Node) {
	if after == nil {
		c.snapshot.RemoveNode(before.Name)
	} else {
		c.snapshot.SetNode(after)
	}
	c.wake(decision.NodeEvents(before, after))
}

func (c *core) namespaceChanged(before, after *corev1.Namespace) {
	switch {
	case after == nil:
		c.snapshot.RemoveNamespace(before.Name)
	case before == nil || !maps.Equal(before.Labels, after.Labels):
		c.snapshot.SetNamespace(after)
		c.wake(decision.NamespaceChanged)
	}
}

// claimChanged handles an event of a persistent volume claim.
func (c *core) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	claim := after
	if after == nil {
		claim = before
		c.snapshot.RemoveClaim(claim.Namespace, claim.Name)
	} else {
		c.snapshot.SetClaim(after)
		c.wake(decision.ClaimChanged)
	}
	if before != nil && selected(before) && !selected(claim) && claim.Spec.VolumeName == "" {
		c.refused(claim)
	}
	c.wakeUsers(claim.Namespace, claim.Name)
}

// selected reports whether a node is selected for the volume of a claim.
func selected(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[volume.AnnSelectedNode] != ""
}

// refused records that the provisioner has given up the node that was selected for a claim.
func (c *core) refused(claim *corev1.PersistentVolumeClaim) {
	for uid, b := range c.binding {
		if pod := c.assumed[uid]; pod != nil && pod.Namespace == claim.Namespace && decision.UsesClaim(pod, claim.Name) {
			b.refused = claim.Name
			c.binding[uid] = b
		}
	}
}

// volumeChanged handles an event of a persistent volume.
func (c *core) volumeChanged(before, after *corev1.PersistentVolume) {
	if after == nil {
		c.snapshot.RemoveVolume(before.Name)
	} else {
		c.snapshot.SetVolume(after)
		c.wake(decision.VolumeChanged)
	}
	for _, pv := range []*corev1.PersistentVolume{before, after} {
		if pv != nil && pv.Spec.ClaimRef != nil {
			c.wakeUsers(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
		}
	}
}

// attachmentChanged handles an event of the attachment of a volume to a node. The deletion
// of one leaves room for another.
func (c *core) attachmentChanged(before, after *storagev1.VolumeAttachment) {
	if before != nil {
		c.snapshot.RemoveAttachment(before)
	}
	if after == nil {
		c.wake(decision.AttachmentGone)
		return
	}
	c.snapshot.SetAttachment(after)
}

// wakeUsers retries the pods that wait for a claim of theirs.
func (c *core) wakeUsers(namespace, claim string) {
	c.queue.Wake(queue.Events(decision.OwnClaimChanged), func(pod *corev1.Pod) bool {
		return pod.Namespace == namespace && decision.UsesClaim(pod, claim)
	})
}

// resourceClaimChanged handles an event of a resource claim. The deletion of one may free
// devices, too.
func (c *core) resourceClaimChanged(before, after *resourcev1.ResourceClaim) {
	claim := after
	if after == nil {
		claim = before
		c.snapshot.RemoveResourceClaim(before.Namespace, before.Name)
	} else {
		c.snapshot.SetResourceClaim(after)
	}
	c.wake(decision.DevicesChanged)
	c.queue.Wake(queue.Events(decision.OwnClaimChanged), func(pod *corev1.Pod) bool { return decision.UsesResourceClaim(pod, claim) })
}

// deviceClassChanged handles an event of a device class. Without it, another one may offer its
// extended resource.
func (c *core) deviceClassChanged(before, after *resourcev1.DeviceClass) {
	if after == nil {
		c.snapshot.RemoveDeviceClass(before.Name)
	} else {
		c.snapshot.SetDeviceClass(after)
		c.wake(decision.DevicesChanged)
	}
	c.queue.Wake(queue.Events(decision.OwnClassChanged), func(pod *corev1.Pod) bool {
		return decision.RequestsClass(pod, before) || decision.RequestsClass(pod, after)
	})
}

// wake retries the pods that wait for one of the events.
func (c *core) wake(events decision.Event) {
	if events != 0 {
		c.queue.Wake(queue.Events(events), nil)
	}
}
