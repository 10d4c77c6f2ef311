package scheduler

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/scheduler/configfile"
	"svc.dev/svc/controllers/scheduler/decision"
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
	// waits is set if the pod must not be bound before its devices are ready.
	waits bool
	// release is the name of a resource claim to deallocate, or to delete if it is that for
	// extended resources, for a pod without a node.
	release string
	// message is the reason why no node fits, and preemption what is done about it.
	message    string
	preemption decision.Preemption
	// err is why there is no decision; the pod is retried.
	err error
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
	}
	for _, profile := range config.Profiles {
		c.names.Insert(profile.SchedulerName)
	}
	c.snapshot.SetProfiles(config.Profiles...)
	c.queue.InitialBackoff, c.queue.MaxBackoff = config.InitialBackoff, config.MaxBackoff
	return c
}

// next schedules the next pod of the queue; false means that there is none.
func (c *core) next() (step, bool) {
	pod := c.queue.Pop()
	if pod == nil {
		return step{}, false
	}
	next := step{pod: pod}
	next.attempts, next.first = c.queue.Attempts(pod.UID)
	if claim := c.binding[pod.UID].refused; claim != "" {
		return c.retry(next, fmt.Errorf("binding volumes: provisioning failed for PVC %q", claim)), true
	}
	before := c.assumed[pod.UID]
	if before != nil {
		c.snapshot.RemovePod(before)
	}
	d := c.snapshot.Decide(pod, c.choose)
	if d.Err != nil {
		return c.retry(next, d.Err), true
	}
	if d.Node == "" {
		c.forget(pod.UID)
		c.queue.Wait(pod.UID, queue.Events(d.WokenBy), queue.MaxWait)
		next.message, next.release = d.Message(), d.Release
		if d.Nodes > 0 {
			next.preemption = c.preempt(pod, &d)
		}
		if why := next.preemption.Message; why != "" {
			next.message += " preemption: " + why
		}
		return next, true
	}
	within, err := c.awaitClaims(pod, d.Claims)
	if err == nil && d.Wait != nil {
		if within, err = c.awaitDevices(pod, d.Wait); err != nil {
			next.release = d.Wait.Claim
		}
	}
	if err != nil {
		return c.retry(next, err), true
	}
	c.snapshot.Nominate(pod, "")
	assumed := *pod
	assumed.Spec.NodeName = d.Node
	c.assumed[pod.UID] = &assumed
	c.snapshot.SetPod(&assumed)
	if before != nil && before.Spec.NodeName != d.Node {
		c.wake(decision.PodGone)
	}
	if next.waits = d.Wait != nil; next.waits || len(d.Claims) > 0 {
		// The pod stays assumed until its claims are bound and its devices are ready, and
		// is then scheduled again.
		c.queue.Await(pod.UID, queue.Events(decision.OwnClaimChanged), within)
	}
	if len(d.Claims) > 0 || before != nil {
		c.snapshot.AssumeClaims(&assumed, d.Claims)
	}
	c.date(pod, d.Devices)
	c.snapshot.AssumeDevices(&assumed, d.Devices)
	next.assumed, next.claims, next.devices, next.extended = &assumed, d.Claims, d.Devices, d.ExtendedStatus
	return next, true
}

// retry ends a step with an error. The pod is retried after a backoff.
func (c *core) retry(s step, err error) step {
	c.forget(s.pod.UID)
	c.queue.Retry(s.pod.UID)
	s.err = err
	return s
}

// date sets the time of new allocations, from which on the pod waits for its devices.
func (c *core) date(pod *corev1.Pod, decisions []decision.DeviceDecision) {
	if c.snapshot.DeviceBindTimeout(pod) == 0 {
		return
	}
	for _, d := range decisions {
		if d.Allocation != nil && d.Allocation.AllocationTimestamp == nil {
			d.Allocation.AllocationTimestamp = &metav1.Time{Time: c.now()}
		}
	}
}

// awaitDevices returns how long a pod still waits for its devices to be ready, or an error if
// they have not been in time.
func (c *core) awaitDevices(pod *corev1.Pod, wait *decision.DeviceWait) (time.Duration, error) {
	timeout := c.snapshot.DeviceBindTimeout(pod)
	if wait.Since.IsZero() {
		return timeout, nil
	}
	left := wait.Since.Add(timeout).Sub(c.now())
	if left <= 0 {
		return 0, fmt.Errorf("binding devices: the devices of resource claim %s were not ready within %s", wait.Claim, timeout)
	}
	return left, nil
}

// awaitClaims returns how long a pod still waits for its claims to be bound, or an error
// if they have not been in time.
func (c *core) awaitClaims(pod *corev1.Pod, claims []decision.ClaimDecision) (time.Duration, error) {
	if len(claims) == 0 {
		delete(c.binding, pod.UID)
		return 0, nil
	}
	now, timeout := c.now(), c.snapshot.BindTimeout(pod)
	b, waits := c.binding[pod.UID]
	if !waits {
		b.since = now
		c.binding[pod.UID] = b
	}
	left := b.since.Add(timeout).Sub(now)
	if waits && left <= 0 {
		return 0, fmt.Errorf("binding volumes: claim %s was not bound within %s", claims[0].Claim, timeout)
	}
	return left, nil
}

// failed reverts a step that failed. The pod is retried, unless it has been
// scheduled again or needs no node any more.
func (c *core) failed(s step) {
	if c.assumed[s.pod.UID] == s.assumed && c.forget(s.pod.UID) {
		c.queue.Retry(s.pod.UID)
		if pod := c.queue.Get(s.pod.UID); pod != nil {
			c.snapshot.Nominate(pod, pod.Status.NominatedNodeName)
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
