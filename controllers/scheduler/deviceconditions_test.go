package scheduler

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/scheduler/decision"
)

// attachable offers a device of the node n that is ready when its driver has set the condition
// Attached, and lets pods wait for it for 10 minutes.
func (c *cluster) attachable() {
	profile := decision.DefaultProfile("default-scheduler")
	profile.DeviceBindTimeout = 10 * time.Minute
	c.core.snapshot.SetProfiles(profile)
	c.core.snapshot.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	c.core.snapshot.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0", BindsToNode: ptr.To(true), BindingConditions: []string{"Attached"}, BindingFailureConditions: []string{"Broken"}}},
	}})
}

// newWaiting returns a cluster whose pod a waits for the device of the claim one.
func newWaiting(t *testing.T) (*cluster, *resourcev1.ResourceClaim) {
	t.Helper()
	c := newCluster(t)
	c.attachable()
	c.node("n", nil)
	claim := c.deviceClaim("one")
	c.pod("a", requests("one"))
	c.expect("a -> n waits")
	return c, claim
}

// deviceClaim creates a claim of one device.
func (c *cluster) deviceClaim(name string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	c.core.resourceClaimChanged(nil, claim)
	return claim
}

// written writes what the last step of a pod decided about a claim, and delivers its event.
func (c *cluster) written(pod string, claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	c.t.Helper()
	s := c.steps[pod]
	if len(s.devices) != 1 {
		c.t.Fatalf("got %d decisions about devices, want 1", len(s.devices))
	}
	after := claim.DeepCopy()
	after.ResourceVersion = "2"
	s.devices[0].ApplyTo(after, s.pod)
	c.core.snapshot.DevicesWritten("ns", claim.Name, after.ResourceVersion)
	c.core.resourceClaimChanged(claim, after)
	return after
}

// condition sets a condition of the device of a claim, and returns the claim.
func (c *cluster) condition(claim *resourcev1.ResourceClaim, condition string) *resourcev1.ResourceClaim {
	after := claim.DeepCopy()
	after.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
		Driver: "d", Pool: "n", Device: "gpu-0", Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}},
	}}
	c.core.resourceClaimChanged(claim, after)
	return after
}

// requests lets a pod use a resource claim.
func requests(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	}
}

func TestAPodStaysAssumedUntilItsDevicesAreReady(t *testing.T) {
	c := newCluster(t)
	c.attachable()
	c.node("n", nil)
	claim := c.deviceClaim("one")
	c.pod("a", requests("one"))
	c.pod("b", nil)
	c.pod("c", nil)
	c.expect("a -> n waits", "b -> n", "c: 1 Insufficient cpu")
	if at := c.steps["a"].devices[0].Allocation.AllocationTimestamp; at == nil || !at.Time.Equal(c.now) {
		t.Errorf("the devices are allocated at %v, now is %v", at, c.now)
	}
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	stale := c.steps["a"]
	if len(stale.devices) != 0 {
		t.Errorf("what has been written is written again: %v", stale.devices)
	}
	c.deviceClaim("other")
	c.expect()
	c.condition(claim, "Attached")
	c.expect("a -> n")
	c.core.failed(stale)
	c.now = c.now.Add(time.Minute)
	c.expect()
}

func TestDevicesThatAreNotReadyInTimeAreGivenBack(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	c.now = c.now.Add(5 * time.Minute) // so long does the queue wait at most
	c.expect("a -> n waits")
	c.pod("b", nil)
	c.pod("c", nil)
	c.expect("b -> n", "c: 1 Insufficient cpu")
	c.now = c.now.Add(5 * time.Minute)
	c.expect("a: binding devices: the devices of resource claim one were not ready within 10m0s", "c -> n")
	if got := c.steps["a"].release; got != "one" {
		t.Errorf("releases %q, want the claim", got)
	}

	// A new allocation has time again.
	c.removePod("b")
	released := claim.DeepCopy()
	released.Status = resourcev1.ResourceClaimStatus{}
	c.core.resourceClaimChanged(claim, released)
	c.now = c.now.Add(time.Minute)
	c.expect("a -> n waits")
}

func TestADeviceThatFailsIsGivenBack(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	c.condition(claim, "Broken")
	c.expect("a: 1 resourceclaim not available on the node")
	if got := c.steps["a"].release; got != "one" {
		t.Errorf("releases %q, want the claim", got)
	}
}

// released ends what the pod of the last step gives back of a claim, and returns the claim as it is
// then. No watch shows it yet.
func (c *cluster) released(pod string, claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	c.t.Helper()
	releases := c.core.gives(c.steps[pod])
	if len(releases) != 1 {
		c.t.Fatalf("pod %s gives back %v, want something of one claim", pod, releases)
	}
	api := fake.NewClientBuilder().WithStatusSubresource(claim).WithObjects(claim.DeepCopy()).Build()
	changed := (&binder{client: api}).release(c.t.Context(), c.steps[pod].pod, releases)
	if len(changed) != 1 {
		c.t.Fatalf("pod %s has changed %d claims, want 1", pod, len(changed))
	}
	c.core.released(types.UID(pod), changed)
	return changed[0]
}

func TestPodsThatShareADeviceThatFailsGiveBackTheirReservationsAndThenTheClaim(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	c.pod("b", requests("one"))
	c.expect("b -> n waits")
	claim = c.written("b", claim)
	c.expect("a -> n waits", "b -> n waits")
	claim = c.condition(claim, "Broken")
	const why = "1 resourceclaim not available on the node"
	c.expect("a: "+why, "b: "+why)
	for i, pod := range []string{"a", "b"} {
		before := claim
		claim = c.released(pod, claim)
		if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 1-i {
			t.Fatalf("pod %s leaves %+v", pod, claim.Status)
		}
		c.core.resourceClaimChanged(before, claim)
	}
	c.now = c.now.Add(time.Minute)
	c.expect("a: "+why, "b: "+why)
	before := claim
	if claim = c.released("a", claim); claim.Status.Allocation != nil {
		t.Fatalf("pod a leaves %+v", claim.Status)
	}
	c.core.resourceClaimChanged(before, claim)
	c.now = c.now.Add(time.Minute)
	c.expect("b -> n waits", `a: resourceclaim "one" is being allocated for another pod`)
}

func TestAPodIsNotDecidedOnWhileItGivesAClaimBack(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	broken := c.condition(claim, "Broken")
	c.expect("a: 1 resourceclaim not available on the node")
	releases := c.core.gives(c.steps["a"])
	c.condition(claim, "Attached") // without it, the pod would be bound now
	c.now = c.now.Add(time.Minute)
	c.expect()

	// An event that is late does not show what was given back.
	given := broken.DeepCopy()
	given.ResourceVersion, given.Status = "3", resourcev1.ResourceClaimStatus{}
	if len(releases) != 1 || !releases[0].Whole {
		t.Fatalf("gives back %+v, want the claim", releases)
	}
	c.core.released("a", []*resourcev1.ResourceClaim{given})
	c.core.resourceClaimChanged(claim, broken)
	c.now = c.now.Add(time.Minute)
	c.expect("a -> n waits")
	if d := c.steps["a"].devices; len(d) != 1 || d[0].Allocation == nil {
		t.Errorf("writes %+v, want a new allocation", d)
	}
}

func TestAPodWhoseClaimsCannotBeReleasedBacksOffLonger(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	c.condition(claim, "Broken")
	for _, backoff := range []time.Duration{1, 2, 4, 8, 10, 10} {
		c.expect("a: 1 resourceclaim not available on the node")
		if releases := c.core.gives(c.steps["a"]); len(releases) != 1 {
			t.Fatalf("gives back %v, want the claim", releases)
		}
		c.core.released("a", nil)
		if next, ok := c.core.queue.Next(); !ok || next.Sub(c.now) != backoff*time.Second {
			t.Fatalf("the backoff is %v, want %v", next.Sub(c.now), backoff*time.Second)
		}
		c.expect()
		c.now = c.now.Add(backoff * time.Second)
	}
}

func TestAPodWhoseDecisionFailsBacksOffOnceThoughItGivesAClaimBack(t *testing.T) {
	c, claim := newWaiting(t)
	c.written("a", claim)
	c.expect("a -> n waits")
	c.now = c.now.Add(5 * time.Minute)
	c.expect("a -> n waits")
	c.now = c.now.Add(5 * time.Minute)
	c.expect("a: binding devices: the devices of resource claim one were not ready within 10m0s")
	if releases := c.core.gives(c.steps["a"]); len(releases) != 1 {
		t.Fatalf("gives back %v, want the claim", releases)
	}
	c.core.released("a", nil)
	if next, ok := c.core.queue.Next(); !ok || next.Sub(c.now) != time.Second {
		t.Errorf("the backoff is %v, want 1s", next.Sub(c.now))
	}
}

func TestAPodThatWasDeletedGivesNothingBack(t *testing.T) {
	c, claim := newWaiting(t)
	claim = c.written("a", claim)
	c.expect("a -> n waits")
	c.condition(claim, "Broken")
	c.expect("a: 1 resourceclaim not available on the node")
	c.removePod("a") // the controller resourceclaim ends its reservations
	if releases := c.core.gives(c.steps["a"]); len(releases) > 0 {
		t.Errorf("gives back %+v", releases)
	}
}

func TestAPodIsNotBoundWhileADecisionAboutItsDevicesIsNotWritten(t *testing.T) {
	c, claim := newWaiting(t)
	stale := c.steps["a"]
	c.core.resourceClaimChanged(claim, claim) // an event that does not show the write
	c.expect("a -> n waits")
	if got := c.steps["a"].devices; len(got) != 1 || !reflect.DeepEqual(got[0].Allocation, stale.devices[0].Allocation) {
		t.Errorf("got %v, want the decision again", got)
	}
	// The write of the first step fails; that of the second counts.
	c.core.failed(stale)
	claim = c.written("a", claim)
	c.condition(claim, "Attached")
	c.expect("a -> n")
}

func TestWaitingForDevicesNeedsItsGates(t *testing.T) {
	profiles := func() []*decision.Profile {
		return []*decision.Profile{{SchedulerName: "plain"}, {SchedulerName: "patient", DeviceBindTimeout: time.Hour}}
	}
	err := awaitDevices(profiles(), false)
	if err == nil || !strings.Contains(err.Error(), "--scheduler-config: profile patient: ") || !strings.Contains(err.Error(), "DRADeviceBindingConditions") {
		t.Error(err)
	}
	without := profiles()[:1]
	if err := awaitDevices(without, false); err != nil || without[0].DeviceBindTimeout != 0 {
		t.Error(err, without[0].DeviceBindTimeout)
	}
	with := profiles()
	if err := awaitDevices(with, true); err != nil {
		t.Fatal(err)
	}
	if with[0].DeviceBindTimeout != decision.DefaultDeviceBindTimeout || with[1].DeviceBindTimeout != time.Hour {
		t.Errorf("got %v and %v", with[0].DeviceBindTimeout, with[1].DeviceBindTimeout)
	}
}

func TestPodsOfAGangShareAClaimThatIsAllocatedForThem(t *testing.T) {
	c := newGroups(t)
	c.core.snapshot.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	c.core.snapshot.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: ptr.To("n"), Pool: resourcev1.ResourcePool{Name: "n", ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}})
	c.node("n", nil)
	c.node("m", nil)
	claim := c.deviceClaim("one")
	c.core.groupChanged(nil, gangOf("g", 2))
	for _, name := range []string{"a", "b"} {
		c.pod(name, func(p *corev1.Pod) { of("g")(p); requests("one")(p) })
	}
	c.expect("a -> n", "b -> n waits")
	c.reported("a", "Scheduled", "")
	c.pod("other", requests("one"))
	c.expect(`other: resourceclaim "one" is being allocated for another pod`)
	c.removePod("other")

	claim = c.written("a", claim)
	c.now = c.now.Add(time.Second)
	c.expect("b -> n") // it reserves the claim
	claim = c.written("b", claim)
	if len(claim.Status.ReservedFor) != 2 {
		t.Errorf("the claim is reserved for %v, want both pods", claim.Status.ReservedFor)
	}
}

func TestAPodThatSharesAClaimAllocatesItIfTheOtherPodIsDeleted(t *testing.T) {
	c := newGroups(t)
	c.attachable()
	c.node("n", nil)
	c.deviceClaim("one")
	c.core.groupChanged(nil, gangOf("g", 2))
	for _, name := range []string{"a", "b"} {
		c.pod(name, func(p *corev1.Pod) { of("g")(p); requests("one")(p) })
	}
	c.expect("a -> n waits", "b -> n waits")
	c.removePod("a")
	c.now = c.now.Add(10 * time.Minute)
	c.expect("b -> n waits")
	if d := c.steps["b"].devices; len(d) != 1 || d[0].Allocation == nil {
		t.Errorf("pod b writes %v, want an allocation", d)
	}
}
