package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
			if s.waits {
				line += " waits"
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
