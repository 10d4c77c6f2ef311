package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/gang"
)

// preemptForGroup decides which pods of lower priority to delete for pods of a group that fit
// nowhere, and nominates these to the nodes where they fit then: each of their steps preempts the
// pods of its node. It reports whether the pods wait for victims, and returns what is done, or why
// nothing is, in the words of kube-scheduler.
func (c *core) preemptForGroup(group *gang.Group, steps []*step) (preempts bool, message string) {
	if slices.ContainsFunc(steps, func(s *step) bool { return c.snapshot.AwaitsVictims(s.pod) }) {
		return true, "ongoing preemption on nominated nodes"
	}
	nodes, victims, why := c.victimsOfGroup(group, steps)
	if nodes == nil {
		for _, s := range steps {
			c.unnominate(s.pod)
		}
		return false, why
	}
	for i := range steps {
		if nodes[i] == "" {
			c.unnominate(steps[i].pod)
			continue
		}
		p := decision.Preemption{Node: nodes[i], Displaced: c.snapshot.NominatedBelow(steps[i].pod, nodes[i])}
		// Victims on nodes where no pod of the group is to go belong to the first one.
		ofStep := func(victim *corev1.Pod) bool {
			first := slices.Index(nodes, victim.Spec.NodeName)
			if first < 0 {
				first = slices.IndexFunc(nodes, func(node string) bool { return node != "" })
			}
			return first == i
		}
		for _, victim := range victims {
			if ofStep(victim) {
				p.Victims = append(p.Victims, victim)
			}
		}
		c.preempts(steps[i].pod, p)
		steps[i].preemption, steps[i].preemptor = p, group.Object
	}
	return true, fmt.Sprintf("found a placement for podgroup, preempting %d victims", len(victims))
}

// victimsOfGroup returns the nodes where pods of a group fit, by the index of their steps, if the
// victims have gone. Nil means that they do not fit, and why.
func (c *core) victimsOfGroup(group *gang.Group, steps []*step) (nodes []string, victims []*corev1.Pod, why string) {
	yielding, why := c.snapshot.Yield(steps[0].pod)
	if yielding == nil {
		return nil, nil, why
	}
	trial := make([]*step, len(steps))
	for i, s := range steps {
		trial[i] = &step{pod: s.pod}
	}
	why, err := c.placeGroup(group, trial)
	defer c.withdraw(trial)
	nodes = make([]string, len(trial))
	var placed []*corev1.Pod
	for i, s := range trial {
		if s.assumed != nil {
			nodes[i] = s.node()
			placed = append(placed, s.assumed)
		}
	}
	switch {
	case err != nil:
		why = err.Error()
	case why == "" && len(placed) == 0:
		why = gang.Unschedulable
	}
	if why != "" {
		yielding.End()
		return nil, nil, why
	}
	return nodes, yielding.Victims(placed), ""
}
