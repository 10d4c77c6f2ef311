package decision

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pods without constraints are spread by default if they have a common owner or
// service: by soft constraints over hosts and, with a larger maxSkew, over zones.
const (
	defaultHostSkew = 3
	defaultZoneSkew = 5
)

// defaultConstraints are those of a pod that has none of its own: KEP-1258.
func (s *Snapshot) defaultConstraints(pod *corev1.Pod) []constraint {
	pods := s.siblings(pod)
	if pods == nil {
		return nil
	}
	return []constraint{
		{key: corev1.LabelHostname, maxSkew: defaultHostSkew, pods: pods, onlyMatching: true},
		{key: corev1.LabelTopologyZone, maxSkew: defaultZoneSkew, pods: pods, onlyMatching: true},
	}
}

// listedConstraints are those that the profile has for a pod with none of its own.
func (s *Snapshot) listedConstraints(r *request, action corev1.UnsatisfiableConstraintAction) []constraint {
	if len(r.profile.DefaultConstraints) == 0 {
		return nil
	}
	pods := s.siblings(r.pod)
	if pods == nil {
		return nil
	}
	var all []constraint
	for i := range r.profile.DefaultConstraints {
		if c := &r.profile.DefaultConstraints[i]; c.WhenUnsatisfiable == action {
			all = append(all, constraint{key: c.TopologyKey, maxSkew: int(c.MaxSkew), minDomains: 1, pods: pods, self: true, onlyMatching: true})
		}
	}
	return all
}

// siblings counts the pods of the pod's replica set, replication controller or
// stateful set, or else those of its services. Nil means that it has none of these.
//
// The owner's UID stands for its selector here: they are the same pods but for
// orphans, and no selector need be matched.
func (s *Snapshot) siblings(pod *corev1.Pod) *podCount {
	owner := spreadingOwner(pod)
	if pods := s.owners[owner]; pods != nil {
		return &pods.podCount
	}
	if owner != "" {
		return &podCount{}
	}
	selector := labels.Set{}
	for _, service := range s.services[pod.Namespace] {
		if service.AsSelector().Matches(labels.Set(pod.Labels)) {
			maps.Copy(selector, service)
		}
	}
	if len(selector) == 0 {
		return nil
	}
	return s.stayingPods(pod.Namespace, selector.AsSelector())
}

// softConstraints returns the constraints for the pod's score: its own soft ones, or
// the default ones if it has no constraints. Nodes must have the
// labels of a pod's own constraints to get any points.
func (s *Snapshot) softConstraints(r *request) (constraints []constraint, needLabels bool) {
	if len(r.pod.Spec.TopologySpreadConstraints) == 0 && !r.profile.ListDefaulting {
		return s.defaultConstraints(r.pod), false
	}
	constraints, err := s.constraints(r, corev1.ScheduleAnyway)
	if err != nil {
		return nil, false // they were rejected when the pod was created
	}
	return constraints, true
}

// unlabelled is the score of a node without one of the labels.
const unlabelled = -1

// spreadsWell prefers domains with few of the pods that the soft constraints select.
func spreadsWell(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	constraints, needLabels := s.softConstraints(r)
	if len(constraints) == 0 {
		return false
	}
	labelled := len(nodes)
	if needLabels {
		for i, n := range nodes {
			if !n.hasAll(constraints) {
				scores[i] = unlabelled
				labelled--
			}
		}
	}
	s.scratch.sums = slices.Grow(s.scratch.sums[:0], len(nodes))[:len(nodes)]
	sums := s.scratch.sums
	clear(sums)
	for i := range constraints {
		c := &constraints[i]
		pods, size := s.podsByNode(r, c, constraints, needLabels), labelled
		if c.key != corev1.LabelHostname {
			size = valuesOf(c.key, nodes, scores)
		}
		// The more domains there are the more a pod in one of them weighs.
		weight := math.Log(float64(size + 2))
		for j, n := range nodes {
			if value, ok := n.label(c.key); ok && scores[j] != unlabelled {
				sums[j] += float64(pods(n, value))*weight + float64(c.maxSkew-1)
			}
		}
	}
	scaleToLowest(scores, sums)
	return true
}

// scaleToLowest turns sums into scores: the lower the better.
func scaleToLowest(scores []int64, sums []float64) {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i := range scores {
		if scores[i] != unlabelled {
			scores[i] = int64(math.Round(sums[i]))
			lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
		}
	}
	for i := range scores {
		switch {
		case scores[i] == unlabelled:
			scores[i] = 0
		case highest == 0:
			scores[i] = maxScore
		default:
			scores[i] = maxScore * (highest + lowest - scores[i]) / highest
		}
	}
}

// podsByNode returns a function that returns the number of pods of a constraint in
// the domain of a node.
func (s *Snapshot) podsByNode(r *request, c *constraint, constraints []constraint, needLabels bool) func(n *node, value string) int {
	switch {
	case c.pods.total == 0:
		return func(*node, string) int { return 0 }
	case c.key == corev1.LabelHostname:
		byNode := c.pods.byNode
		return func(n *node, _ string) int { return byNode[n] }
	}
	if !c.excludes(r) && (!needLabels || s.nodes.haveAll(constraints)) {
		byValue := c.pods.in(c.key).values
		return func(_ *node, value string) int { return byValue[value] }
	}
	counted := map[string]int{}
	for n, pods := range c.pods.byNode {
		if c.includes(n, r) && (!needLabels || n.hasAll(constraints)) {
			value, _ := n.label(c.key)
			counted[value] += pods
		}
	}
	return func(_ *node, value string) int { return counted[value] }
}

// valuesOf counts the distinct values of a label, a missing one included, except of
// nodes with a negative score.
func valuesOf(key string, nodes []*node, scores []int64) int {
	// There are few zones, and the nodes of a search alternate between them.
	var few [8]string
	found := few[:0]
	var many map[string]struct{}
	for i, n := range nodes {
		value, _ := n.label(key)
		switch {
		case scores[i] < 0 || slices.Contains(found, value):
		case many != nil:
			many[value] = struct{}{}
		case len(found) < len(few):
			found = append(found, value)
		default:
			many = map[string]struct{}{value: {}}
		}
	}
	return len(found) + len(many)
}
