package scheduler

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/scheduler/queue"
)

// TestGroupsEndAsTheirPodsSayWhateverTheOrderOfEvents delivers random events. Whatever their order,
// the pods of a group are counted as they are; and once there is room, each pod that is not held has
// a node, and no other one keeps a place.
func TestGroupsEndAsTheirPodsSayWhateverTheOrderOfEvents(t *testing.T) {
	for seed := range int64(300) {
		r := &randomEvents{cluster: newGroups(t), Rand: rand.New(rand.NewSource(seed)), groups: map[string]*schedulingv1beta1.PodGroup{}}
		for range 120 {
			r.event()
			r.checkCounts()
		}
		r.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// randomEvents are the events of a cluster with a few groups.
type randomEvents struct {
	*cluster
	*rand.Rand
	groups map[string]*schedulingv1beta1.PodGroup
	// running are the steps that were begun and have not ended.
	running []step
	created int
}

// priorityOf is that of a group and its pods: one group may preempt the pods of the others.
func priorityOf(group string) int32 {
	if group == "g1" {
		return 10
	}
	return 0
}

func (r *randomEvents) event() {
	group := fmt.Sprint("g", r.Intn(3))
	switch r.Intn(12) {
	case 0:
		r.node(fmt.Sprint("n", r.Intn(3)), nil)
	case 1, 2, 3:
		r.addPod(fmt.Sprint("g", r.Intn(4))) // the last is none
	case 4:
		r.changeGroup(group)
	case 5:
		before := r.groups[group]
		if delete(r.groups, group); before != nil {
			r.core.groupChanged(before, nil)
		}
	case 6, 7:
		r.changePod()
	case 8, 9:
		for range 1 + r.Intn(4) {
			r.begin()
		}
	case 10:
		r.end(r.Intn(4) > 0)
	case 11:
		r.now = r.now.Add(time.Duration(r.Intn(20)) * time.Second)
	}
}

func (r *randomEvents) addPod(group string) {
	r.created++
	r.pod(fmt.Sprint("p", r.created), func(p *corev1.Pod) {
		if group != "g3" {
			of(group)(p)
		}
		priority(priorityOf(group))(p)
		if r.Intn(10) == 0 {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
		}
	})
}

// changeGroup creates a group, or changes its count.
func (r *randomEvents) changeGroup(name string) {
	before, minCount := r.groups[name], r.Intn(5)
	if before != nil {
		minCount = max(1, minCount)
		if before.Spec.SchedulingPolicy.Gang == nil {
			minCount = 0
		}
	}
	after := gangOf(name, minCount)
	after.Spec.Priority = ptr.To(priorityOf(name))
	r.groups[name] = after
	r.core.groupChanged(before, after)
}

func (r *randomEvents) changePod() {
	names := slices.Sorted(maps.Keys(r.pods))
	if len(names) == 0 {
		return
	}
	switch name := names[r.Intn(len(names))]; r.Intn(4) {
	case 0:
		r.removePod(name)
	case 1:
		r.pod(name, func(p *corev1.Pod) {
			if p.Spec.NodeName != "" {
				p.Status.Phase = corev1.PodSucceeded
			}
		})
	case 2:
		r.pod(name, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
	case 3:
		r.pod(name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: r.now} })
	}
}

// begin takes the next step, and reports whether there was one.
func (r *randomEvents) begin() bool {
	s, ok := r.core.next()
	if ok && (s.assumed != nil || s.preemption.Node != "") {
		r.running = append(r.running, s)
	}
	return ok
}

// end ends a step: a binding, which may fail, or a preemption.
func (r *randomEvents) end(succeeds bool) {
	if len(r.running) == 0 {
		return
	}
	i := r.Intn(len(r.running))
	s := r.running[i]
	r.running = slices.Delete(r.running, i, i+1)
	name := s.pod.Name
	switch exists := r.pods[name] != nil; {
	case s.assumed != nil && exists && succeeds && r.pods[name].Spec.NodeName == "":
		r.pod(name, on(s.node()))
	case s.assumed != nil:
		r.core.failed(s)
	case !exists:
		r.core.preemptionFailed(s, errPreemptorGone)
	default:
		r.pod(name, func(p *corev1.Pod) {
			if p.Spec.NodeName == "" {
				p.Status.NominatedNodeName = s.preemption.Node
			}
		})
		for _, victim := range s.preemption.Victims {
			if r.pods[victim.Name] != nil {
				r.removePod(victim.Name)
			}
		}
	}
}

// waits reports whether a pod that has no node is to get one.
func waits(p *corev1.Pod) bool { return p.Spec.NodeName == "" && p.DeletionTimestamp == nil }

func (r *randomEvents) checkCounts() {
	all, scheduled := map[string]int{}, map[string]int{}
	for _, p := range r.pods {
		if p.Spec.SchedulingGroup == nil || podspec.IsTerminal(p.Status.Phase) || p.Spec.NodeName == "" && !waits(p) {
			continue
		}
		group := *p.Spec.SchedulingGroup.PodGroupName
		all[group]++
		if p.Spec.NodeName != "" || r.core.assumed[p.UID] != nil {
			scheduled[group]++
		}
	}
	for _, name := range []string{"g0", "g1", "g2"} {
		group := r.core.groups.Get(gangOf(name, 1))
		if group == nil {
			if all[name] > 0 || r.groups[name] != nil {
				r.t.Errorf("%s is forgotten", name)
			}
			continue
		}
		if len(group.All()) != all[name] || group.Scheduled() != scheduled[name] {
			r.t.Errorf("%s: %d of %d pods are scheduled, want %d of %d", name, group.Scheduled(), len(group.All()), scheduled[name], all[name])
		}
	}
}

// settle adds room for all pods, and ends all steps.
func (r *randomEvents) settle() {
	for name := range r.pods {
		r.pod(name, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
	}
	for i := range r.created {
		r.node(fmt.Sprint("room", i), nil)
	}
	for range 5 {
		for r.begin() {
		}
		for len(r.running) > 0 {
			r.end(true)
		}
		r.checkCounts()
		r.now = r.now.Add(queue.MaxWait)
	}
	for name, p := range r.pods {
		switch held := r.core.groups.Held(p); {
		case waits(p) && !held:
			r.t.Errorf("pod %s has no node", name)
		case r.core.snapshot.Nominated(p.UID) != "":
			r.t.Errorf("a place is kept for pod %s", name)
		}
	}
	if len(r.core.assumed)+len(r.core.binding)+len(r.core.decided) > 0 {
		r.t.Errorf("%d pods are assumed, %d wait for claims, %d steps are left", len(r.core.assumed), len(r.core.binding), len(r.core.decided))
	}
}
