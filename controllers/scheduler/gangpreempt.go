package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/gang"
)

// preemptForGang decides which pods of lower priority to delete for a gang that fits nowhere, and
// nominates its pods to the nodes where they fit then: each of their steps preempts the pods of its
// node. It returns what is done, or why nothing is, in the words of kube-scheduler.
func (c *core) preemptForGang(group *gang.Group, steps []step) string {
	if slices.ContainsFunc(steps, func(s step) bool { return c.snapshot.AwaitsVictims(s.pod) }) {
		return "ongoing preemption on nominated nodes"
	}
	nodes, victims, why := c.victimsOfGang(group, steps)
	if nodes == nil {
		for _, s := range steps {
			c.unnominate(s.pod)
		}
		return why
	}
	for i := range steps {
		if nodes[i] == "" {
			c.unnominate(steps[i].pod)
			continue
		}
		p := decision.Preemption{Node: nodes[i], Displaced: c.snapshot.NominatedBelow(steps[i].pod, nodes[i])}
		// Victims on nodes where no pod of the gang is to go belong to the first one.
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
		steps[i].preemption = p
	}
	return fmt.Sprintf("found a placement for podgroup, preempting %d victims", len(victims))
}

// victimsOfGang returns the nodes where the pods of a gang fit, by the index of their steps, if the
// victims have gone. Nil means that they do not fit, and why.
func (c *core) victimsOfGang(group *gang.Group, steps []step) (nodes []string, victims []*corev1.Pod, why string) {
	yielding, why := c.snapshot.Yield(steps[0].pod)
	if yielding == nil {
		return nil, nil, why
	}
	trial := make([]step, len(steps))
	for i, s := range steps {
		trial[i] = step{pod: s.pod}
	}
	why, err := c.placeGang(group.MinCount(), group.Scheduled(), trial)
	defer c.withdraw(trial)
	if err != nil || why != "" {
		yielding.End()
		if err != nil {
			why = err.Error()
		}
		return nil, nil, why
	}
	nodes = make([]string, len(trial))
	var placed []*corev1.Pod
	for i, s := range trial {
		if s.assumed != nil {
			nodes[i] = s.node()
			placed = append(placed, s.assumed)
		}
	}
	return nodes, yielding.Victims(placed), ""
}
