package scheduler

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/queue"
)

// sharingPeriod is how long a pod waits for a claim that is being allocated for another pod of its
// group. Then it is decided on again.
const sharingPeriod = 10 * time.Second

// place assumes a pod on the node of a decision. An error is that it has waited too long for
// its claims.
func (c *core) place(next step, d *decision.Decision) (step, error) {
	pod := next.pod
	var err error
	next.within, err = c.awaitClaims(pod, d.Claims)
	if err == nil && d.Wait != nil {
		if next.within, err = c.awaitDevices(pod, d.Wait); err != nil {
			next.release = d.Wait.Claim
		}
	}
	if err != nil {
		return next, err
	}
	if d.Shares && d.Wait == nil {
		next.within = sharingPeriod
	}
	next.nominated = c.snapshot.Nominated(pod.UID)
	c.snapshot.Nominate(pod, "")
	assumed := *pod
	assumed.Spec.NodeName = d.Node
	again := c.assumed[pod.UID] != nil
	c.assumed[pod.UID] = &assumed
	c.snapshot.SetPod(&assumed)
	c.setMember(&assumed)
	next.waits = d.Wait != nil || d.Shares
	if again || len(d.Claims) > 0 {
		c.snapshot.AssumeClaims(&assumed, d.Claims)
	}
	c.date(pod, d.Devices)
	c.snapshot.AssumeDevices(&assumed, d.Devices)
	next.assumed, next.claims, next.devices, next.extended = &assumed, d.Claims, d.Devices, d.ExtendedStatus
	return next, nil
}

// await lets a pod stay assumed until its claims are bound and its devices are ready. Then
// it is scheduled again.
func (c *core) await(s step) {
	if s.waits || len(s.claims) > 0 {
		c.queue.Await(s.pod.UID, queue.Events(decision.OwnClaimChanged), s.within)
	}
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
