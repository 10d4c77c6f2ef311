package scheduler

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"svc.dev/svc/controllers/scheduler/queue"
)

// newGroups returns a cluster whose pods are scheduled as their groups say.
func newGroups(t *testing.T) *cluster {
	c := newCluster(t)
	c.core.considerGroups()
	return c
}

// gangOf returns a PodGroup that needs so many pods; with 0, its policy is basic.
func gangOf(name string, minCount int) *schedulingv1beta1.PodGroup {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1}}
	if minCount == 0 {
		group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	} else {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(minCount)}
	}
	return group
}

func of(group string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
}

func (c *cluster) podsOf(group string, names ...string) {
	for _, name := range names {
		c.pod(name, of(group))
	}
}

// reported requires the result that the step of a pod reports for its group.
func (c *cluster) reported(pod, reason, message string) {
	c.t.Helper()
	switch r := c.steps[pod].group; {
	case r == nil:
		c.t.Errorf("pod %s: no result of its group", pod)
	case r.reason != reason || r.message != message:
		c.t.Errorf("pod %s: group is %s %q, want %s %q", pod, r.reason, r.message, reason, message)
	}
}

func TestPodsOfAGangAreHeldUntilTheGroupExistsAndTheyAreEnough(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.podsOf("g", "a")
	c.expect()
	c.core.groupChanged(nil, gangOf("g", 2))
	c.expect()
	c.podsOf("g", "b")
	c.expect("a -> n", "b -> n")
	c.reported("a", "Scheduled", "")
}

func TestAGangGetsNoNodeUnlessEnoughOfItsPodsFit(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 3))
	c.podsOf("g", "a", "b", "c")
	const why = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, pod group preemption: No preemption victims found for incoming preemptor"
	c.expect("a: pod group is unschedulable, "+why, "b: pod group is unschedulable, "+why, "c: 1 Insufficient cpu")
	c.reported("a", "Unschedulable", why)
	c.pod("single", nil)
	c.expect("single -> n") // the gang has left nothing behind
	c.removePod("single")

	// Another node lets all be scheduled at once.
	c.now = c.now.Add(queue.InitialBackoff)
	c.node("m", nil)
	c.expect("a -> m", "b -> n", "c -> m")
	c.reported("a", "Scheduled", "")
}

func TestAGangIsGivenUpAsSoonAsTooFewPodsAreLeft(t *testing.T) {
	c := newGroups(t)
	c.core.groupChanged(nil, gangOf("g", 3))
	c.podsOf("g", "a", "b", "c")
	const why = "minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"
	c.expect("a: no nodes available to schedule pods", "b: "+why, "c: "+why)
}

func TestPodsBeyondTheNeedOfAGangGetNodesAsTheyFit(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a", "b", "c")
	c.expect("a -> n", "b -> n", "c: 1 Insufficient cpu")
	c.reported("a", "Scheduled", "")
	c.pod("a", on("n"))
	c.pod("b", on("n"))
	c.now = c.now.Add(queue.InitialBackoff)
	c.node("m", nil)
	c.expect("c -> m")
}

func TestTwoGangsDoNotHoldResourcesThatTheOtherNeeds(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.node("m", nil)
	c.core.groupChanged(nil, gangOf("g", 3))
	c.core.groupChanged(nil, gangOf("h", 3))
	// The pods of both come in turn: one by one, each gang would get two of the four places.
	for _, name := range []string{"1", "2", "3"} {
		c.podsOf("g", "g"+name)
		c.podsOf("h", "h"+name)
	}
	c.expect("g1 -> m", "g2 -> n", "g3 -> m", "h1: minCount (3)", "h2: Insufficient cpu", "h3: minCount (3)")
	for name, node := range map[string]string{"g1": "m", "g2": "n", "g3": "m"} {
		c.pod(name, on(node))
	}
	for _, name := range []string{"g1", "g2", "g3"} {
		c.removePod(name)
	}
	c.now = c.now.Add(queue.MaxBackoff)
	c.expect("h1 -> m", "h2 -> n", "h3 -> m")
}

func TestAGangThatFitsNowhereIsRetriedByEventsAndFromTimeToTime(t *testing.T) {
	for _, test := range []struct {
		name    string
		happens func(c *cluster)
		retried bool
	}{
		{"nothing", func(*cluster) {}, false},
		{"an event that cannot help", func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }) }, false},
		{"a node comes", func(c *cluster) { c.node("m", nil) }, true},
		{"a pod goes", func(c *cluster) { c.removePod("other") }, true},
		{"it needs fewer pods", func(c *cluster) { c.core.groupChanged(gangOf("g", 3), gangOf("g", 2)) }, true},
		{"a pod of it gets a node by another scheduler", func(c *cluster) {
			c.pod("d", func(p *corev1.Pod) { of("g")(p); p.Spec.NodeName = "elsewhere" })
		}, true},
		{"another pod of it is created", func(c *cluster) { c.podsOf("g", "d") }, true},
		{"17 seconds, as many as sqrt(3) times the longest backoff, pass", func(c *cluster) { c.now = c.now.Add(17321 * time.Millisecond) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newGroups(t)
			c.node("n", nil)
			c.pod("other", on("n"))
			c.core.groupChanged(nil, gangOf("g", 3))
			c.podsOf("g", "a", "b", "c")
			c.expect("a: minCount (3)", "b: Insufficient cpu", "c: minCount (3)")
			c.now = c.now.Add(queue.InitialBackoff)
			test.happens(c)
			clear(c.steps)
			for s, ok := c.core.next(); ok; s, ok = c.core.next() {
				c.steps[s.pod.Name] = s
			}
			if _, retried := c.steps["a"]; retried != test.retried || test.retried && len(c.steps) < 3 {
				t.Errorf("retried %d pods, want the gang: %v", len(c.steps), test.retried)
			}
		})
	}
}

func TestAnEventOfOnePodOfAGangRetriesAll(t *testing.T) {
	c := newGroups(t)
	c.node("n", func(n *corev1.Node) { n.Labels["zone"] = "a" })
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a")
	c.pod("b", func(p *corev1.Pod) { of("g")(p); p.Spec.NodeSelector = map[string]string{"zone": "b"} })
	c.expect("a: minCount (2)", "b: didn't match Pod's node affinity")
	c.now = c.now.Add(queue.InitialBackoff)
	c.node("n", func(n *corev1.Node) { n.Labels["zone"] = "b" })
	c.expect("a -> n", "b -> n")
}

func TestASchedulerThatStartsCompletesAGangOfWhichSomePodsAreBound(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.pod("a", func(p *corev1.Pod) { of("g")(p); p.Spec.NodeName = "n" })
	c.podsOf("g", "b", "c")
	c.core.groupChanged(nil, gangOf("g", 3))
	const why = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
	c.expect("b: "+why, "c: Insufficient cpu")
	c.now = c.now.Add(queue.InitialBackoff)
	c.node("m", nil)
	c.expect("b -> m", "c -> m")
}

func TestASchedulerThatStartsReportsThatAGangIsScheduled(t *testing.T) {
	c := newGroups(t)
	for _, name := range []string{"a", "b"} {
		if len(c.core.scheduled) > 0 {
			t.Fatalf("reported before %s has a node", name)
		}
		c.pod(name, func(p *corev1.Pod) { of("g")(p); p.Spec.NodeName = "n" })
		c.core.groupChanged(nil, gangOf("g", 2))
	}
	if r := c.core.scheduled; len(r) == 0 || r[0].reason != "Scheduled" || r[0].group.Name != "g" {
		t.Errorf("reported %v", r)
	}
	c.core.scheduled = nil
	done := gangOf("g", 2)
	done.Status.Conditions = []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionTrue}}
	c.core.groupChanged(gangOf("g", 2), done)
	if len(c.core.scheduled) > 0 {
		t.Error("reported again")
	}
}

func TestABindingThatFailsIsRetriedThoughTheRestOfTheGangIsBound(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a", "b")
	c.expect("a -> n", "b -> n")
	c.pod("a", on("n"))
	c.core.failed(c.steps["b"])
	c.now = c.now.Add(queue.InitialBackoff)
	c.expect("b -> n")
}

func TestPodsOfAGangThatLosesOneBeforeItIsScheduledAreHeldAgain(t *testing.T) {
	c := newGroups(t)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a", "b")
	c.removePod("b")
	c.node("n", nil)
	c.expect()
	if held := c.core.queue.Pending(queue.Gated); held != 1 {
		t.Errorf("%d pods are held, want 1", held)
	}
	c.podsOf("g", "b")
	c.expect("a -> n", "b -> n")
}

func TestAPodIsHeldWhileTooFewOthersOfItsGangHaveNotEnded(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.node("m", nil)
	c.core.groupChanged(nil, gangOf("g", 3))
	c.podsOf("g", "a", "b", "c")
	c.expect("a -> m", "b -> n", "c -> m")
	c.pod("a", on("m"))
	c.pod("b", on("n"))
	c.pod("c", on("m"))
	c.pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	c.pod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	c.podsOf("g", "d")
	c.expect()
	c.core.groupChanged(gangOf("g", 3), gangOf("g", 2))
	c.expect("d -> n")
}

func TestAPodThatLosesItsNodeWaitsForAGroupThatWasDeleted(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 1))
	c.podsOf("g", "a")
	c.expect("a -> n")
	c.core.groupChanged(gangOf("g", 1), nil)
	c.core.failed(c.steps["a"])
	c.now = c.now.Add(queue.MaxBackoff)
	c.expect()
	c.core.groupChanged(nil, gangOf("g", 1))
	c.expect("a -> n")
}

func TestADeletedPodOfAGangFreesItsPlace(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a", "b")
	c.expect("a -> n", "b -> n")
	c.removePod("a")
	c.pod("single", nil)
	c.expect("single -> n")
}

func TestAPodAtVarianceWithItsGroupIsAnErrorOfAll(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.core.groupChanged(nil, gangOf("h", 0))
	c.podsOf("g", "a")
	c.pod("b", func(p *corev1.Pod) { of("g")(p); priority(7)(p) })
	c.pod("c", func(p *corev1.Pod) { of("h")(p); priority(7)(p) })
	const why = "all pods in a single pod group should have the same priority as the pod group's priority, got 7 and 0"
	c.expect("a: "+why, "b: "+why, "c: "+why)
	c.reported("a", "SchedulerError", why)
	c.reported("c", "SchedulerError", why)
}

func TestTheOtherPodsOfAGangSayThatOneCouldNotBeDecidedOn(t *testing.T) {
	c := newGroups(t)
	c.core.snapshot.SetExtenders(&down{err: errors.New("connection refused")})
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a", "b")
	c.expect("a: connection refused", "b: failed to schedule other pod from a pod group: connection refused")
	if r := c.steps["a"].group; r == nil || r.reason != "SchedulerError" {
		t.Errorf("group is %+v", r)
	}
}

func TestPodsOfABasicGroupGetNodesAsTheyFitOnceItExists(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.podsOf("g", "a", "b", "c")
	c.expect()
	c.core.groupChanged(nil, gangOf("g", 0))
	c.expect("a -> n", "b -> n", "c: Insufficient cpu")
	c.reported("a", "Scheduled", "")
}

func TestAPodWithGatesHoldsTheOthersOfABasicGroup(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 0))
	gates := func(p *corev1.Pod) { of("g")(p); p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }
	c.pod("a", gates)
	c.podsOf("g", "b")
	c.expect()
	c.pod("a", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
	c.expect("a -> n", "b -> n")
}

func TestAGroupThatIsCompleteWhoseOtherPodsFitNowhereSaysSo(t *testing.T) {
	c := newGroups(t)
	c.core.groupChanged(nil, gangOf("g", 1))
	c.pod("a", func(p *corev1.Pod) { of("g")(p); p.Spec.NodeName = "elsewhere" })
	c.node("n", nil)
	c.pod("b", func(p *corev1.Pod) { of("g")(p); tooLarge(p) })
	c.expect("b: Insufficient cpu")
	c.reported("b", "Unschedulable", "pod group is unschedulable, pod group preemption: No preemption victims found for incoming preemptor")
}

func TestPodsWithAGroupAreScheduledAtOnceWithoutTheGate(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.podsOf("g", "a")
	c.expect("a -> n")
	if c.steps["a"].group != nil {
		t.Error("a result for the group")
	}
}

func TestAPodInAGroupOfAnUnknownKindIsScheduledByItself(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.pod("a", func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} })
	c.expect("a -> n")
}

// tooLarge is a pod that fits no node.
func tooLarge(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("5")
}

func TestAGangThatDoesNotFitGivesItsVolumesBack(t *testing.T) {
	c := newGroups(t)
	c.class(volume.NotSupportedProvisioner)
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.core.volumeChanged(nil, newVolume("v"))
	c.core.claimChanged(nil, newClaim("data"))
	c.core.claimChanged(nil, newClaim("other"))
	c.pod("a", func(p *corev1.Pod) { of("g")(p); uses("data")(p) })
	c.pod("b", func(p *corev1.Pod) { of("g")(p); tooLarge(p) })
	c.expect("a: minCount (2)", "b: Insufficient cpu")
	c.pod("single", uses("other"))
	c.expect("single -> n other=v")
}

func TestAGangThatDoesNotFitGivesItsDevicesBack(t *testing.T) {
	c := newGroups(t)
	c.attachable()
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	c.deviceClaim("one")
	c.deviceClaim("two")
	c.pod("a", func(p *corev1.Pod) { of("g")(p); requests("one")(p) })
	c.pod("b", func(p *corev1.Pod) { of("g")(p); tooLarge(p) })
	c.expect("a: minCount (2)", "b: Insufficient cpu")
	c.pod("single", requests("two"))
	c.expect("single -> n waits")
}

func TestAPodOfAGangStaysAssumedWhileItsClaimsAreBound(t *testing.T) {
	c := newGroups(t)
	c.class("example.com/disks")
	c.node("n", nil)
	c.core.groupChanged(nil, gangOf("g", 2))
	claim := newClaim("data")
	c.core.claimChanged(nil, claim)
	c.pod("a", func(p *corev1.Pod) { of("g")(p); uses("data")(p) })
	c.podsOf("g", "b")
	c.expect("a -> n data=", "b -> n")
	c.pod("b", on("n"))
	bound := claim.DeepCopy()
	bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes", volume.AnnSelectedNode: "n"}
	bound.Spec.VolumeName = "pv"
	c.core.volumeChanged(nil, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	c.core.claimChanged(claim, bound)
	c.expect("a -> n")
}

func TestPodGroupsAreWatchedWithTheirGateOnly(t *testing.T) {
	isGroups := func(k kind) bool { _, ok := k.object.(*schedulingv1beta1.PodGroup); return ok }
	if slices.ContainsFunc(kinds(), isGroups) || !isGroups(groups()) {
		t.Error("PodGroups are watched without the gate")
	}
}

func TestTheSchedulerWaitsForTheReleaseThatDecidesAboutItsGates(t *testing.T) {
	for _, gate := range append(profileGates(), groupsGate) {
		if gates := New().ReleaseGates; !slices.Contains(gates, gate) {
			t.Errorf("gates %v, want %s", gates, gate)
		}
	}
}
