package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/configfile"
	"svc.dev/svc/controllers/scheduler/decision"
)

// cluster has the objects of a cluster, and delivers their events to a core as the
// watches do.
type cluster struct {
	t     *testing.T
	now   time.Time
	core  *core
	pods  map[string]*corev1.Pod
	nodes map[string]*corev1.Node
	// steps has the last step of each pod.
	steps map[string]step
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, now: time.Unix(0, 0), pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, steps: map[string]step{}}
	c.core = newCore(configfile.Default("default-scheduler"), func() time.Time { return c.now }, func(int) int { return 0 })
	return c
}

// node creates or updates a node with two CPUs.
func (c *cluster) node(name string, change func(*corev1.Node)) {
	before := c.nodes[name]
	after := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10"),
		}},
	}
	if before != nil {
		after = before.DeepCopy()
	}
	if change != nil {
		change(after)
	}
	c.nodes[name] = after
	c.core.nodeChanged(before, after)
}

// pod creates or updates a pod that requests one CPU.
func (c *cluster) pod(name string, change func(*corev1.Pod)) {
	before := c.pods[name]
	after := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			SchedulerName: "default-scheduler",
			Containers:    []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
		},
	}
	if before != nil {
		after = before.DeepCopy()
	}
	if change != nil {
		change(after)
	}
	c.pods[name] = after
	c.core.podChanged(before, after)
}

func (c *cluster) removePod(name string) {
	before := c.pods[name]
	delete(c.pods, name)
	c.core.podChanged(before, nil)
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// expect compares the next steps of the core, until there are none, with lines such as "a -> node" or "a: Insufficient cpu" (a part of the message).
func (c *cluster) expect(want ...string) {
	c.t.Helper()
	var got []string
	for s, ok := c.core.next(); ok; s, ok = c.core.next() {
		c.steps[s.pod.Name] = s
		if s.err != nil {
			got = append(got, fmt.Sprintf("%s: %v", s.pod.Name, s.err))
		} else if s.assumed != nil {
			line := fmt.Sprintf("%s -> %s", s.pod.Name, s.node())
			for _, claim := range s.claims {
				line += fmt.Sprintf(" %s=%s", claim.Claim, claim.Volume)
			}
			got = append(got, line)
		} else {
			got = append(got, fmt.Sprintf("%s: %s", s.pod.Name, s.message))
		}
	}
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		pod, part, refused := strings.Cut(want[i], ": ")
		ok = ok && (got[i] == want[i] || refused && strings.HasPrefix(got[i], pod+": ") && strings.Contains(got[i], part))
	}
	if !ok {
		c.t.Fatalf("got %q, want %q", got, want)
	}
}

func TestAssumedPodUsesResources(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	for _, name := range []string{"a", "b", "c"} {
		c.pod(name, nil)
	}
	c.expect("a -> n", "b -> n", "c: 1 Insufficient cpu")
}

func TestBoundPodDoesNotCountTwice(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("a", nil)
	c.expect("a -> n")
	c.pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }) // an old version, late
	c.expect()
	c.pod("a", on("n"))
	c.pod("b", nil)
	c.pod("c", nil)
	c.expect("b -> n", "c: 1 Insufficient cpu")
}

func TestFailedBindingIsRetriedAfterABackoff(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("a", nil)
	c.expect("a -> n")
	c.core.failed(c.steps["a"])
	c.expect()
	c.now = c.now.Add(time.Second)
	c.expect("a -> n")
}

// down is an extender that fails as long as it has an error.
type down struct {
	decision.Extender
	err error
}

func (d *down) Extends(*corev1.Pod) bool { return true }

func (d *down) Filter(*corev1.Pod, []*corev1.Node) (decision.Filtered, error) {
	return decision.Filtered{Accepted: sets.New("n")}, d.err
}

func TestPodIsRetriedAfterABackoffIfAnExtenderFails(t *testing.T) {
	c := newCluster(t)
	e := &down{err: errors.New("connection refused")}
	c.core.snapshot.SetExtenders(e)
	c.node("n", nil)
	c.pod("a", nil)
	c.expect("a: connection refused")
	c.expect()
	e.err = nil
	c.now = c.now.Add(time.Second)
	c.expect("a -> n")
}

func TestFailedBindingFreesResources(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	for _, name := range []string{"a", "b", "c"} {
		c.pod(name, nil)
	}
	c.expect("a -> n", "b -> n", "c: 1 Insufficient cpu")
	c.core.failed(c.steps["a"])
	c.expect("c -> n")
}

func TestDeletionOfAnAssumedPodFreesResources(t *testing.T) {
	for name, gone := range map[string]func(*cluster){
		"deleted":     func(c *cluster) { c.removePod("a") },
		"terminating": func(c *cluster) { c.pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }) },
		"replaced":    func(c *cluster) { c.pod("a", func(p *corev1.Pod) { p.UID, p.Spec.SchedulerName = "a2", "other" }) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n", nil)
			for _, name := range []string{"a", "b", "c"} {
				c.pod(name, nil)
			}
			c.expect("a -> n", "b -> n", "c: 1 Insufficient cpu")
			gone(c)
			c.expect("c -> n")
			c.core.failed(c.steps["a"])
			c.now = c.now.Add(time.Minute)
			c.expect()
			if len(c.core.assumed) != 2 {
				t.Errorf("assumed: %v", c.core.assumed)
			}
		})
	}
}

func TestBindingByAnotherSchedulerReplacesTheAssumedOne(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.node("m", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	for _, name := range []string{"a", "b", "c"} {
		c.pod(name, nil)
	}
	c.expect("a -> n", "b -> n", "c: 1 Insufficient cpu")
	c.pod("a", on("m"))
	c.core.failed(c.steps["a"])
	c.expect("c -> n")
	if len(c.core.assumed) != 2 {
		t.Errorf("assumed: %v", c.core.assumed)
	}
}

func TestPodsOfOtherSchedulersAndTerminatedPodsAreNotScheduled(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"another scheduler's": func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" },
		"bound":               on("n"),
		"terminating":         func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"failed":              func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"succeeded":           func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"gated":               func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}} },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n", nil)
			c.pod("a", change)
			c.expect()
		})
	}
}

func TestEventsRetryUnschedulablePods(t *testing.T) {
	taint := []corev1.Taint{{Key: "full", Effect: corev1.TaintEffectNoSchedule}}
	for _, test := range []struct {
		name, refused string
		before        func(*cluster)
		after         func(*cluster)
	}{
		{"when a node is created", "no nodes available to schedule pods", nil, func(c *cluster) { c.node("n", nil) }},
		{
			"when a node is uncordoned", "1 node(s) were unschedulable",
			func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Spec.Unschedulable = true }) },
			func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Spec.Unschedulable = false }) },
		},
		{
			"when a taint is removed", "1 node(s) had untolerated taint",
			func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Spec.Taints = taint }) },
			func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Spec.Taints = nil }) },
		},
		{
			"when it tolerates the taint", "1 node(s) had untolerated taint",
			func(c *cluster) { c.node("n", func(n *corev1.Node) { n.Spec.Taints = taint }) },
			func(c *cluster) {
				c.pod("a", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })
			},
		},
		{
			"when a node grows", "1 Insufficient cpu",
			func(c *cluster) {
				c.node("n", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("0") })
			},
			func(c *cluster) {
				c.node("n", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1") })
			},
		},
		{
			"when a pod is deleted", "1 Insufficient cpu",
			func(c *cluster) { c.node("n", nil); c.pod("b", on("n")); c.pod("c", on("n")) },
			func(c *cluster) { c.removePod("b") },
		},
		{
			"when a pod has terminated", "1 Insufficient cpu",
			func(c *cluster) { c.node("n", nil); c.pod("b", on("n")); c.pod("c", on("n")) },
			func(c *cluster) { c.pod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t)
			if test.before != nil {
				test.before(c)
			}
			c.pod("a", nil)
			c.expect("a: " + test.refused)
			c.expect()
			test.after(c)
			c.expect("a -> n")
		})
	}
}

func TestUnrelatedEventsRetryNoPod(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("b", on("n"))
	c.pod("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	})
	c.expect("a: 1 Insufficient cpu")
	c.node("n", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} })
	c.pod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	c.core.namespaceChanged(nil, &corev1.Namespace{})
	c.pod("a", func(p *corev1.Pod) { p.Status.Message = "waiting" })
	c.expect()
}

func TestPodStaysAssumedWhileItsClaimsAreBound(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	claim := newClaim("data")
	c.core.claimChanged(nil, claim)
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.pod("b", nil)
	c.pod("c", nil)
	c.expect("a -> n data=", "b -> n", "c: 1 Insufficient cpu")

	claim = claim.DeepCopy()
	claim.Annotations = map[string]string{volume.AnnSelectedNode: "n"}
	c.core.claimChanged(claim, claim)
	c.expect("a -> n data=")
	stale := c.steps["a"]

	claim = claim.DeepCopy()
	claim.Annotations[volume.AnnBindCompleted] = "yes"
	claim.Spec.VolumeName = "pv"
	c.core.volumeChanged(nil, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	c.core.claimChanged(claim, claim)
	c.expect("a -> n")
	c.core.failed(stale)
	c.now = c.now.Add(time.Minute)
	c.expect()
}

// class creates the class "disks", whose claims wait for a pod.
func (c *cluster) class(provisioner string) {
	c.core.snapshot.SetClass(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("disks"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}}
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{StorageClassName: "disks", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
}

// uses lets a pod use a claim.
func uses(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func TestPodsThatAreDecidedOnTogetherGetDifferentVolumes(t *testing.T) {
	c := newCluster(t)
	c.class(volume.NotSupportedProvisioner)
	c.node("n", nil)
	c.node("m", nil)
	for _, name := range []string{"a", "b", "c"} {
		c.core.claimChanged(nil, newClaim(name))
		c.pod(name, uses(name))
	}
	c.core.volumeChanged(nil, newVolume("x"))
	c.core.volumeChanged(nil, newVolume("y"))
	c.expect("a -> m a=x", "b -> n b=y", "c: didn't find available persistent volumes to bind")

	// The volume of a step that failed is free again, also after an event that does not
	// show the reservation.
	c.core.volumeChanged(newVolume("x"), newVolume("x"))
	c.now = c.now.Add(time.Minute)
	c.expect("c: didn't find available persistent volumes to bind")
	c.core.failed(c.steps["a"])
	c.expect("c -> m c=x")

	// A reservation that a watch shows lasts.
	written := newVolume("x")
	written.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "c"}
	c.core.volumeChanged(newVolume("x"), written)
	c.core.failed(c.steps["c"])
	c.now = c.now.Add(time.Minute)
	c.expect("a: didn't find available persistent volumes to bind", "c -> m c=x")
}

// The watch of claims may be ahead of that of volumes.
func TestAVolumeStaysReservedUntilTheWatchOfVolumesShowsItsClaim(t *testing.T) {
	for _, end := range []struct {
		name string
		of   func(*cluster)
		then []string
	}{
		{"the pod needs no more claims", func(*cluster) {}, nil},
		{"the pod is bound", func(c *cluster) { c.pod("a", on("n")) }, nil},
		{"binding the pod fails", func(c *cluster) { c.core.failed(c.steps["a"]) }, []string{"a -> n"}},
	} {
		t.Run(end.name, func(t *testing.T) {
			c := newCluster(t)
			c.class(volume.NotSupportedProvisioner)
			c.node("n", nil)
			c.core.claimChanged(nil, newClaim("a"))
			c.core.claimChanged(nil, newClaim("b"))
			c.core.volumeChanged(nil, newVolume("x"))
			c.pod("a", uses("a"))
			c.expect("a -> n a=x")
			bound := newClaim("a")
			bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
			bound.Spec.VolumeName = "x"
			c.core.claimChanged(newClaim("a"), bound)
			c.expect("a -> n")
			end.of(c)
			c.pod("b", uses("b"))
			c.expect("b: didn't find available persistent volumes to bind")

			// When the watch shows that the claim has gone, the volume is free.
			shown := newVolume("x")
			shown.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
			c.core.volumeChanged(newVolume("x"), shown)
			c.core.volumeChanged(shown, newVolume("x"))
			c.now = c.now.Add(time.Minute)
			c.expect(append(end.then, "b -> n b=x")...)
		})
	}
}

func TestAVolumeThatLosesItsClaimRetriesThePodsOfTheClaim(t *testing.T) {
	c := newCluster(t)
	claim := newClaim("a")
	c.class(volume.NotSupportedProvisioner)
	c.node("n", nil)
	c.core.claimChanged(nil, claim)
	c.core.volumeChanged(nil, newVolume("x"))
	c.pod("a", uses("a"))
	c.expect("a -> n a=x")
	shown := newVolume("x")
	shown.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
	c.core.volumeChanged(newVolume("x"), shown)
	c.expect("a -> n a=x")
	c.core.volumeChanged(shown, newVolume("x"))
	c.expect("a -> n a=x")
}

func TestPodsThatShareAClaimGetTheNodeThatIsSelectedForIt(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.expect("a -> n data=")
	c.node("m", nil)
	c.pod("other", on("n"))
	c.pod("b", uses("data"))
	c.expect("b: didn't find available persistent volumes to bind")
	c.core.failed(c.steps["a"])
	c.expect("b -> m data=")
}

func TestOnlyEventsOfItsOwnClaimsRetryAPodThatWaitsForThem(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	c.node("n", nil)
	for _, name := range []string{"a", "b"} {
		c.core.claimChanged(nil, newClaim(name))
		c.pod(name, uses(name))
	}
	c.expect("a -> n a=", "b -> n b=")
	c.core.claimChanged(nil, newClaim("other"))
	c.core.volumeChanged(nil, newVolume("other"))
	c.expect()
	c.core.claimChanged(newClaim("b"), newClaim("b"))
	c.expect("b -> n b=")
	created := newVolume("x")
	created.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
	c.core.volumeChanged(nil, created)
	c.expect("a -> n a=")
	c.core.volumeChanged(created, nil)
	c.expect("a -> n a=")
	c.core.claimChanged(newClaim("a"), nil)
	c.expect(`a: persistentvolumeclaim "a" not found`)
}

func TestAPodWaitsForItsClaimsNoLongerThanItsProfileAllows(t *testing.T) {
	c := newCluster(t)
	profile := decision.DefaultProfile("default-scheduler")
	profile.BindTimeout = time.Minute
	c.core.snapshot.SetProfiles(profile)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.expect("a -> n data=")
	for _, name := range []string{"b", "c"} {
		c.pod(name, nil)
	}
	c.expect("b -> n", "c: 1 Insufficient cpu")
	c.now = c.now.Add(30 * time.Second)
	c.core.claimChanged(newClaim("data"), newClaim("data"))
	c.expect("a -> n data=")
	if next, ok := c.core.queue.Next(); !ok || !next.Equal(c.now.Add(30*time.Second)) {
		t.Errorf("the next decision is at %v, now is %v", next, c.now)
	}
	c.now = c.now.Add(30 * time.Second)
	// Others get its resources.
	c.expect("a: binding volumes: claim data was not bound within 1m0s", "c -> n")
	c.now = c.now.Add(time.Minute)
	c.expect("a: 1 Insufficient cpu")
}

func TestAPodWithoutTimeToWaitGetsItsClaimsBoundAndIsRetried(t *testing.T) {
	c := newCluster(t)
	profile := decision.DefaultProfile("default-scheduler")
	profile.BindTimeout = 0
	c.core.snapshot.SetProfiles(profile)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.expect("a -> n data=", "a: binding volumes: claim data was not bound within 0s")
	c.now = c.now.Add(time.Minute)
	bound := newClaim("data")
	bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	bound.Spec.VolumeName = "x"
	c.core.volumeChanged(nil, newVolume("x"))
	c.core.claimChanged(newClaim("data"), bound)
	c.expect("a -> n")
}
