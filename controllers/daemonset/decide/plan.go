// Package decide owns the decision of the daemon set controller: on which nodes pods are
// created, which are deleted, and what the status says. The scripts in testdata show each
// rule by example.
package decide

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/controllers/scheduler/decision"
)

// State is what a plan is made from.
type State struct {
	Set  *appsv1.DaemonSet
	Kind schema.GroupVersionKind
	// Pods are those that the set controls.
	Pods  []*corev1.Pod
	Nodes []*corev1.Node
	// Hash is that of the revision with the set's template.
	Hash       string
	Collisions *int32
	Now        time.Time
}

// Plan is what a sync does.
type Plan struct {
	// Create are new pods, and Delete pods that go.
	Create, Delete []*corev1.Pod
	// Failed and Succeeded are pods that have terminated though daemon pods never should.
	// They are deleted with an event, failed ones after a backoff.
	Failed, Succeeded []*corev1.Pod
	Status            appsv1.DaemonSetStatus
	// After is the time until the next pod becomes available. 0 is none.
	After time.Duration
}

// plan is a plan in the making.
type plan struct {
	State
	Plan
	template *corev1.Pod
	nodes    []place
	surge    int
}

// place is a node with the pods of the set, and whether it should run one and may keep
// one.
type place struct {
	name      string
	run, stay bool
	pods      []*corev1.Pod
}

// Decide returns the plan for a daemon set. Pods of a rollout are replaced when nothing
// else is to be done.
func Decide(s State) Plan {
	p := &plan{State: s, template: NewPod(s.Set, s.Kind, s.Hash)}
	lost := p.sort()
	p.observe()
	surge, unavailable := p.limits()
	p.surge = surge
	for i := range p.nodes {
		p.manage(&p.nodes[i])
	}
	p.Delete = append(p.Delete, lost...)
	if len(p.Create)+len(p.Delete) == 0 && s.Set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		if surge > 0 {
			p.rollSurging(surge)
		} else {
			p.roll(unavailable)
		}
	}
	return p.Plan
}

// sort sorts the pods by their nodes, and returns those that wait for a node that is gone.
func (p *plan) sort() (lost []*corev1.Pod) {
	fit := decision.NewDaemonPod(p.template)
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range p.Pods {
		// A terminated pod that is being deleted does not delay the next one.
		if name := NodeOf(pod); name != "" && (!pods.IsTerminal(pod) || pod.DeletionTimestamp == nil) {
			byNode[name] = append(byNode[name], pod)
		}
	}
	for _, node := range p.Nodes {
		run, stay := fit.Fits(node)
		sortByAge(byNode[node.Name])
		p.nodes = append(p.nodes, place{node.Name, run, stay, byNode[node.Name]})
		delete(byNode, node.Name)
	}
	slices.SortFunc(p.nodes, func(a, b place) int { return strings.Compare(a.name, b.name) })
	for _, gone := range byNode {
		for _, pod := range gone {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				lost = append(lost, pod) // the others are garbage of the node
			}
		}
	}
	slices.SortFunc(lost, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return lost
}

// manage creates the pod that a node lacks, and deletes those that it should not have. While
// surging, a node whose pods are all being deleted lacks one already.
func (p *plan) manage(at *place) {
	lacks := len(at.pods) == 0
	if p.surge > 0 {
		lacks = !slices.ContainsFunc(at.pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	}
	switch {
	case at.run && lacks:
		p.Create = append(p.Create, onNode(p.template, at.name))
	case at.stay:
		p.deleteExcess(p.deleteTerminated(at.pods))
	default:
		for _, pod := range at.pods {
			if pod.DeletionTimestamp == nil {
				p.Delete = append(p.Delete, pod)
			}
		}
	}
}

// deleteTerminated returns the pods that are neither terminated nor being deleted.
func (p *plan) deleteTerminated(all []*corev1.Pod) (active []*corev1.Pod) {
	for _, pod := range all {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed:
			p.Failed = append(p.Failed, pod)
		case pod.Status.Phase == corev1.PodSucceeded:
			p.Succeeded = append(p.Succeeded, pod)
		default:
			active = append(active, pod)
		}
	}
	return active
}

// deleteExcess deletes all pods of a node but the oldest one: while surging, the oldest
// of the new revision and the oldest of an old one, until the new one is available or the
// old one is not ready.
func (p *plan) deleteExcess(active []*corev1.Pod) {
	if len(active) <= 1 {
		return
	}
	if p.surge == 0 {
		p.Delete = append(p.Delete, active[1:]...)
		return
	}
	var updated, old *corev1.Pod
	for _, pod := range active {
		switch {
		case p.isUpdated(pod) && updated == nil:
			updated = pod
		case !p.isUpdated(pod) && old == nil:
			old = pod
		default:
			p.Delete = append(p.Delete, pod)
		}
	}
	if updated != nil && old != nil && (!pods.IsReady(old) || p.available(updated)) {
		p.Delete = append(p.Delete, old)
	}
}

func (p *plan) isUpdated(pod *corev1.Pod) bool { return pod.Labels[HashLabel] == p.Hash }

// available reports whether a pod has been ready for minReadySeconds. Otherwise, the plan
// is made again when it has.
func (p *plan) available(pod *corev1.Pod) bool {
	ok, in := pods.IsAvailable(pod, p.Set.Spec.MinReadySeconds, p.Now)
	if in > 0 && (p.After == 0 || in < p.After) {
		p.After = in
	}
	return ok
}

// limits returns how many pods may run beyond one for each node, and how many nodes may
// be without an available pod: at least one of them is not zero.
func (p *plan) limits() (surge, unavailable int) {
	rolling := p.Set.Spec.UpdateStrategy.RollingUpdate
	if p.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || rolling == nil {
		return 0, 1
	}
	scaled := func(limit *intstr.IntOrString) int {
		if limit == nil {
			return 0
		}
		// The API server has validated it.
		n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(p.Status.DesiredNumberScheduled), true)
		if err != nil {
			return 0
		}
		return n
	}
	surge, unavailable = scaled(rolling.MaxSurge), scaled(rolling.MaxUnavailable)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// roll deletes old pods: those that are not available, and as many others as the limit
// of unavailable ones allows.
func (p *plan) roll(limit int) {
	var candidates []*corev1.Pod
	for i := range p.nodes {
		at := &p.nodes[i]
		if len(at.pods) == 0 {
			continue
		}
		updated, old, ok := p.revisions(at.pods)
		switch {
		case !ok || (updated == nil) == (old == nil), updated != nil && !p.available(updated):
			limit--
		case updated != nil:
		case !p.available(old):
			limit--
			if !pods.IsTerminal(old) { // otherwise it is deleted already, with its backoff
				p.Delete = append(p.Delete, old)
			}
		default:
			candidates = append(candidates, old)
		}
	}
	p.Delete = append(p.Delete, candidates[:max(0, min(limit, len(candidates)))]...)
}

// rollSurging creates new pods beside old ones: beside those that are not available, and
// beside as many others as the limit allows. On nodes that may keep an old pod, but should not
// run a new one, it deletes the old one: if it is not available, or as soon as there are more
// available pods than nodes that should run one.
func (p *plan) rollSurging(limit int) {
	var always, candidates []string
	var unwanted []*corev1.Pod
	surplus := -int(p.Status.DesiredNumberScheduled)
	for i := range p.nodes {
		at := &p.nodes[i]
		if len(at.pods) == 0 {
			continue
		}
		updated, old, ok := p.revisions(at.pods)
		if counted := cmp.Or(old, updated); ok && counted != nil && p.available(counted) {
			surplus++
		}
		switch {
		case !ok:
			limit--
		case old == nil:
		case updated != nil:
			limit-- // when it is available, the old one is deleted
		case !at.run && p.available(old):
			unwanted = append(unwanted, old)
		case !at.run:
			if !pods.IsTerminal(old) { // otherwise it is deleted already, with its backoff
				p.Delete = append(p.Delete, old)
			}
		case !p.available(old):
			always = append(always, at.name)
		default:
			candidates = append(candidates, at.name)
		}
	}
	p.Delete = append(p.Delete, unwanted[:max(0, min(surplus, len(unwanted)))]...)
	for _, name := range append(always, candidates[:max(0, min(limit, len(candidates)))]...) {
		p.Create = append(p.Create, onNode(p.template, name))
	}
}

// revisions returns the updated pod and the old one of a node, without those that are being
// deleted: on a node that is down, they stay. ok is false if there are two of them.
func (p *plan) revisions(all []*corev1.Pod) (updated, old *corev1.Pod, ok bool) {
	for _, pod := range all {
		if pod.DeletionTimestamp != nil {
			continue
		}
		slot := &old
		if p.isUpdated(pod) {
			slot = &updated
		}
		if *slot != nil {
			return nil, nil, false
		}
		*slot = pod
	}
	return updated, old, true
}

// observe writes the status of the pods as they are.
func (p *plan) observe() {
	p.Status = appsv1.DaemonSetStatus{ObservedGeneration: p.Set.Generation, CollisionCount: p.Collisions, Conditions: p.Set.Status.Conditions}
	s := &p.Status
	for i := range p.nodes {
		at := &p.nodes[i]
		switch {
		case at.run:
			s.DesiredNumberScheduled++
			if len(at.pods) > 0 {
				p.count(at.pods[0])
			}
		case len(at.pods) > 0:
			s.NumberMisscheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
}

// count counts the oldest pod of a node.
func (p *plan) count(pod *corev1.Pod) {
	s := &p.Status
	s.CurrentNumberScheduled++
	if pods.IsReady(pod) {
		s.NumberReady++
	}
	if p.available(pod) {
		s.NumberAvailable++
	}
	if p.isUpdated(pod) {
		s.UpdatedNumberScheduled++
	}
}
