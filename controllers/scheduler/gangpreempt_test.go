package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/queue"
)

// important returns a gang of priority 10.
func important(name string, minCount int) *schedulingv1beta1.PodGroup {
	group := gangOf(name, minCount)
	group.Spec.Priority = ptr.To(int32(10))
	return group
}

// importantPods creates pods of a gang of priority 10.
func (c *cluster) importantPods(group string, names ...string) {
	for _, name := range names {
		c.pod(name, func(p *corev1.Pod) { of(group)(p); priority(10)(p) })
	}
}

// low creates a pod of priority 0 on a node.
func (c *cluster) low(name, node string) { c.pod(name, on(node)) }

// preempted returns the victims and the nominations of the last steps.
func (c *cluster) preempted() (victims []string, nominated int) {
	for _, s := range c.steps {
		for _, victim := range s.preemption.Victims {
			victims = append(victims, victim.Name)
		}
		if s.preemption.Node != "" {
			nominated++
		}
	}
	slices.Sort(victims)
	return victims, nominated
}

func TestAGangThatFitsNowherePreemptsPodsOfLowerPriority(t *testing.T) {
	c := newGroups(t)
	c.node("n", nil)
	c.node("m", nil)
	for i, node := range []string{"n", "n", "m", "m"} {
		c.low(fmt.Sprint("low", i), node)
	}
	c.core.groupChanged(nil, important("g", 3))
	c.importantPods("g", "a", "b", "c")
	const why = "minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"
	c.expect("a: Insufficient cpu", "b: "+why, "c: "+why)
	c.reported("a", "Unschedulable", why+", pod group preemption: found a placement for podgroup, preempting 3 victims")
	victims, nominated := c.preempted()
	if len(victims) != 3 || nominated != 3 {
		t.Fatalf("victims %v, %d pods nominated", victims, nominated)
	}

	// Others do not get the places, and the gang preempts no more while its victims terminate.
	for _, victim := range victims {
		c.pod(victim, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	}
	c.removePod(victims[0])
	c.pod("late", nil)
	c.now = c.now.Add(queue.MaxBackoff)
	clear(c.steps)
	for s, ok := c.core.next(); ok; s, ok = c.core.next() {
		c.steps[s.pod.Name] = s
		if s.assumed != nil {
			t.Errorf("%s got the place of a victim", s.pod.Name)
		}
	}
	if more, _ := c.preempted(); len(more) > 0 {
		t.Errorf("%v are preempted, too", more)
	}

	c.removePod(victims[1])
	c.removePod(victims[2])
	c.now = c.now.Add(queue.MaxBackoff)
	bound := 0
	for s, ok := c.core.next(); ok; s, ok = c.core.next() {
		if s.assumed != nil && s.pod.Name != "late" {
			bound++
		}
	}
	if bound != 3 {
		t.Errorf("%d pods of the gang are bound", bound)
	}
}

func TestAGangGetsThePlacesOfVictimsThatWaitThereAtOnce(t *testing.T) {
	c := newGroups(t)
	c.podWithClaim("low")
	c.core.groupChanged(nil, important("g", 2))
	c.importantPods("g", "a", "b")
	returned := 0
	for range 2 {
		s, _ := c.core.next()
		c.steps[s.pod.Name] = s
		returned += len(s.returned)
	}
	if victims, nominated := c.preempted(); returned != 1 || len(victims) != 0 || nominated != 2 {
		t.Errorf("%d pods are returned, %v deleted, %d nominated", returned, victims, nominated)
	}
	c.expect("a -> n", "b -> n")
}

func TestAGangPreemptsNoMoreThanItNeeds(t *testing.T) {
	for _, test := range []struct {
		rule  string
		setup func(c *cluster)
		want  []string
	}{
		{"a free place is used", func(c *cluster) { c.low("a1", "n"); c.low("a2", "n"); c.low("b1", "m") }, []string{"a1"}},
		{"pods of higher priority stay", func(c *cluster) {
			c.pod("high", func(p *corev1.Pod) { on("n")(p); priority(10)(p) })
			c.low("a2", "n")
			c.low("b1", "m")
		}, []string{"a2"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := newGroups(t)
			c.node("n", nil)
			c.node("m", nil)
			test.setup(c)
			c.core.groupChanged(nil, important("g", 2))
			c.importantPods("g", "x", "y")
			for s, ok := c.core.next(); ok; s, ok = c.core.next() {
				c.steps[s.pod.Name] = s
			}
			if victims, _ := c.preempted(); len(victims) != len(test.want) {
				t.Errorf("victims %v, want %v", victims, test.want)
			}
		})
	}
}

func TestAGangPreemptsNothing(t *testing.T) {
	for _, test := range []struct {
		rule, why string
		change    func(*corev1.Pod)
		minCount  int
		lows      int
	}{
		{"if none of its pods may", "not eligible due to preemptionPolicy=Never.", func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }, 2, 2},
		{"if no pod has a lower priority", "No preemption victims found for incoming preemptor", func(*corev1.Pod) {}, 3, 0},
		{"if it does not fit without them either", "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining", func(*corev1.Pod) {}, 3, 2},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := newGroups(t)
			c.node("n", nil)
			for i := range test.lows {
				c.low(fmt.Sprint("low", i), "n")
			}
			c.core.groupChanged(nil, important("g", test.minCount))
			for i := range test.minCount {
				c.pod(fmt.Sprint("g", i), func(p *corev1.Pod) { of("g")(p); priority(10)(p); test.change(p) })
			}
			for s, ok := c.core.next(); ok; s, ok = c.core.next() {
				c.steps[s.pod.Name] = s
			}
			if victims, nominated := c.preempted(); len(victims) > 0 || nominated > 0 {
				t.Errorf("victims %v, %d pods nominated", victims, nominated)
			}
			want := ", pod group preemption: " + test.why
			if r := c.steps["g0"].group; r == nil || !strings.HasSuffix(r.message, want) {
				t.Errorf("the group says %+v, want the end %q", r, want)
			}
			// All pods that were hidden are there again.
			c.pod("single", tooLarge)
			if nodes, pods := c.core.snapshot.Size(); nodes != 1 || pods != test.lows {
				t.Errorf("the snapshot has %d nodes and %d pods", nodes, pods)
			}
		})
	}
}

func TestNoPlaceIsKeptForAGangThatIsHeld(t *testing.T) {
	for _, written := range []bool{false, true} { // the nomination of the pod that is left, after that
		c := newGroups(t)
		c.node("n", nil)
		c.low("low0", "n")
		c.low("low1", "n")
		c.core.groupChanged(nil, important("g", 2))
		c.importantPods("g", "a", "b")
		c.expect("a: Insufficient cpu", "b: minCount (2)")
		c.removePod("b")
		if written {
			c.pod("a", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" })
		}
		c.removePod("low0")
		c.pod("single", nil)
		c.expect("single -> n")
	}
}

func TestPodsThatDoNotFitBesidesTheirGroupPreemptForTheGroup(t *testing.T) {
	for _, minCount := range []int{0, 1} {
		c := newGroups(t)
		c.node("n", nil)
		c.low("low", "n")
		c.core.groupChanged(nil, important("g", minCount))
		c.importantPods("g", "a", "b")
		c.expect("a -> n", "b: 0/1 nodes are available: 1 Insufficient cpu.")
		c.reported("a", "Scheduled", "")
		s := c.steps["b"]
		if victims, _ := c.preempted(); !slices.Equal(victims, []string{"low"}) || s.preemption.Node != "n" || s.preemptor == nil || s.preemptor.Name != "g" {
			t.Errorf("with minCount %d, %v are preempted for %v on %q", minCount, victims, s.preemptor, s.preemption.Node)
		}
	}
}

func TestPodsOfAGroupWithTheDisruptionModeAllArePreemptedAtTheSameTime(t *testing.T) {
	for _, test := range []struct {
		rule    string
		preempt func(c *cluster)
	}{
		{"by a pod", func(c *cluster) { c.pod("high", priority(10)) }},
		{"by a gang", func(c *cluster) {
			c.core.groupChanged(nil, important("g", 1))
			c.importantPods("g", "a")
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := newGroups(t)
			c.node("n", nil)
			c.node("m", nil)
			victims := gangOf("v", 2)
			victims.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
			c.core.groupChanged(nil, victims)
			for i, node := range []string{"n", "n", "m", "m"} {
				c.pod(fmt.Sprint("v", i), func(p *corev1.Pod) { on(node)(p); of("v")(p) })
			}
			test.preempt(c)
			for s, ok := c.core.next(); ok; s, ok = c.core.next() {
				c.steps[s.pod.Name] = s
			}
			if got, _ := c.preempted(); !slices.Equal(got, []string{"v0", "v1", "v2", "v3"}) {
				t.Errorf("preempted %v, want all pods of the group", got)
			}
		})
	}
}

func TestVictimsSayWhetherAPodOrAGroupPreemptsThem(t *testing.T) {
	s := step{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{SchedulerName: "s"}}}
	s.preemption.Node = "n"
	of := func(event, condition string) {
		t.Helper()
		if s.preempted() != event || s.preempting() != condition {
			t.Errorf("%q, %q, want %q, %q", s.preempted(), s.preempting(), event, condition)
		}
	}
	of("Preempted by pod u on node n", "s: preempting to accommodate a higher priority pod")
	s.preemptor = &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "g"}}
	of("Preempted by podgroup g on node cluster", "s: preempting to accommodate a higher priority podgroup")
}

func TestThePlaceToWhichAPodIsNominatedIsFreeForItsGroup(t *testing.T) {
	c := newGroups(t)
	c.node("n", func(n *corev1.Node) { n.Labels["zone"] = "a" })
	c.node("m", nil)
	c.low("low", "n")
	c.core.groupChanged(nil, gangOf("g", 2))
	c.podsOf("g", "a")
	c.pod("a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })
	c.pod("b", func(p *corev1.Pod) { of("g")(p); p.Status.NominatedNodeName = "n" })
	c.pod("other", on("m"))
	c.expect("a -> n", "b -> m")
}
