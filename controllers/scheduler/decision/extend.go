package decision

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Extender takes part in decisions about some pods, after the filters and scores. A
// decision waits for its answers. An error ends a decision without a node: an extender
// that may be ignored returns none.
type Extender interface {
	// Extends reports whether decisions about a pod need its answers.
	Extends(pod *corev1.Pod) bool
	// Filter returns which of the nodes accept a pod.
	Filter(pod *corev1.Pod, nodes []*corev1.Node) (Filtered, error)
	// Prioritize returns what to add to the scores of nodes, by their names. A score of
	// the scheduler adds 0 to 100, times its weight.
	Prioritize(pod *corev1.Pod, nodes []*corev1.Node) map[string]int64
	// Preempt returns which of the nodes, by their names, preemption may free for a pod,
	// and the pods to delete there, at least one for each node.
	Preempt(pod *corev1.Pod, candidates map[string]*extenderv1.Victims) (map[string]*extenderv1.MetaVictims, error)
}

// Filtered is the answer of an extender's filter. A node that is in none of the fields is
// rejected without a reason.
type Filtered struct {
	// Accepted are the names of the nodes that accept the pod.
	Accepted sets.Set[string]
	// Rejected are the reasons of nodes that may accept the pod when pods have left them,
	// and Unresolvable those of nodes that never do, by node name.
	Rejected, Unresolvable extenderv1.FailedNodesMap
}

// extenderName takes the place of the plugin's name in Decision.Filters.
const extenderName = "Extender"

// anyEvent are the events after which an extender may accept a node: it has not said
// which they are.
const anyEvent = ^Event(0)

// SetExtenders replaces the extenders. They are asked in this order; those after the
// first that rejects all nodes are not.
func (s *Snapshot) SetExtenders(extenders ...Extender) { s.extenders = extenders }

// extendersOf returns the extenders that a pod needs.
func (s *Snapshot) extendersOf(pod *corev1.Pod) []Extender {
	var interested []Extender
	for _, e := range s.extenders {
		if e.Extends(pod) {
			interested = append(interested, e)
		}
	}
	return interested
}

// passExtenders returns the nodes that all extenders accept, in the memory of found, and
// adds the reasons of the others.
func (s *Snapshot) passExtenders(r *request, found []*node, reasons *reasons) ([]*node, error) {
	for _, e := range r.extenders {
		if len(found) == 0 {
			return found, nil
		}
		answer, err := e.Filter(r.pod, objectsOf(found))
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(n *node) bool {
			if answer.Accepted.Has(n.name) {
				return false
			}
			if why, ok := answer.Unresolvable[n.name]; ok {
				reasons.add(why, 1)
			} else if why, ok := answer.Rejected[n.name]; ok {
				reasons.add(why, 1)
				s.scratch.resolvable = append(s.scratch.resolvable, n)
			}
			return true
		})
	}
	return found, nil
}

// addPriorities adds the scores of the extenders.
func addPriorities(r *request, nodes []*node, totals []int64) {
	for _, e := range r.extenders {
		scores := e.Prioritize(r.pod, objectsOf(nodes))
		for i, n := range nodes {
			totals[i] += scores[n.name]
		}
	}
}

// extendPreemption returns the candidates that the extenders leave, with the victims that
// they choose.
func (s *Snapshot) extendPreemption(pod *corev1.Pod, candidates []candidate) ([]candidate, error) {
	for _, e := range s.extendersOf(pod) {
		if len(candidates) == 0 {
			break
		}
		answer, err := e.Preempt(pod, victimsOf(candidates))
		if err != nil {
			return nil, err
		}
		var left []candidate
		for _, c := range candidates {
			chosen := answer[c.node.name]
			if chosen == nil {
				continue
			}
			if err := c.choose(chosen); err != nil {
				return nil, err
			}
			left = append(left, c)
		}
		candidates = left
	}
	return candidates, nil
}

// victimsOf returns the victims by node name.
func victimsOf(candidates []candidate) map[string]*extenderv1.Victims {
	all := map[string]*extenderv1.Victims{}
	for _, c := range candidates {
		victims := &extenderv1.Victims{NumPDBViolations: int64(c.violations)}
		for _, p := range c.victims {
			victims.Pods = append(victims.Pods, p.object)
		}
		all[c.node.name] = victims
	}
	return all
}

// choose replaces the victims by those that an extender has chosen, which must be pods
// of the node or of a group with such pods.
func (c *candidate) choose(chosen *extenderv1.MetaVictims) error {
	if len(chosen.Pods) == 0 {
		return fmt.Errorf("an extender chose no pod to delete on node %s", c.node.name)
	}
	victims := make([]*boundPod, 0, len(chosen.Pods))
	known := slices.Concat(c.node.pods, c.victims)
	for _, meta := range chosen.Pods {
		i := slices.IndexFunc(known, func(p *boundPod) bool { return p.object.UID == types.UID(meta.UID) })
		if i < 0 {
			return fmt.Errorf("an extender chose the pod with the UID %s on node %s, which is not there", meta.UID, c.node.name)
		}
		victims = append(victims, known[i])
	}
	slices.SortStableFunc(victims, func(a, b *boundPod) int { return byImportance(single(a), single(b)) })
	c.victims, c.violations = victims, int(chosen.NumPDBViolations)
	return nil
}

// objectsOf returns the objects of nodes, ordered by name.
func objectsOf(nodes []*node) []*corev1.Node {
	objects := make([]*corev1.Node, len(nodes))
	for i, n := range nodes {
		objects[i] = n.object
	}
	slices.SortFunc(objects, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return objects
}
