package decision

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// constraint is a topology spread constraint of a pod, parsed.
type constraint struct {
	key                 string
	maxSkew, minDomains int
	// pods are those that are to be spread, and self tells whether the pod itself
	// will be one of them.
	pods *tally
	self bool
	// onlyMatching and onlyTolerated leave out the nodes that the pod's node
	// affinity or taints keep it off.
	onlyMatching, onlyTolerated bool
}

// excludes tells whether the constraint leaves out nodes that have the label.
func (c *constraint) excludes(r *request) bool {
	return c.onlyMatching && r.selectsNodes() || c.onlyTolerated
}

// includes tells whether a node that has the label counts.
func (c *constraint) includes(n *node, r *request) bool {
	return n.object != nil &&
		(!c.onlyMatching || r.matches(n)) &&
		(!c.onlyTolerated || toleratesAll(r.pod.Spec.Tolerations, n.taints))
}

// constraints returns the pod's constraints that are required (DoNotSchedule) or
// preferred (ScheduleAnyway).
func (s *Snapshot) constraints(pod *corev1.Pod, action corev1.UnsatisfiableConstraintAction) ([]constraint, error) {
	var all []constraint
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != action {
			continue
		}
		selector, err := spreadSelector(c, pod.Labels)
		if err != nil {
			return nil, fmt.Errorf("obtaining pod's topology spread constraints: %w", err)
		}
		all = append(all, constraint{
			key: c.TopologyKey, maxSkew: int(c.MaxSkew), minDomains: int(ptr.Deref(c.MinDomains, 1)),
			pods: s.stayingPods(pod.Namespace, selector), self: selector.Matches(labels.Set(pod.Labels)),
			onlyMatching:  ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor,
			onlyTolerated: ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor,
		})
	}
	return all, nil
}

// spreadSelector is the label selector with the pod's own values of matchLabelKeys.
func spreadSelector(c *corev1.TopologySpreadConstraint, set map[string]string) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return nil, err
	}
	own := labels.Set{}
	for _, key := range c.MatchLabelKeys {
		if value, ok := set[key]; ok {
			own[key] = value
		}
	}
	if requirements, selectable := selector.Requirements(); selectable && len(own) > 0 {
		selector = own.AsSelector().Add(requirements...)
	}
	return selector, nil
}

// stayingPods counts the pods of a namespace that match and are not being
// deleted. An empty selector counts none, as in Kubernetes.
func (s *Snapshot) stayingPods(namespace string, selector labels.Selector) *tally {
	if selector.Empty() {
		return &tally{}
	}
	return &s.countOf(selection{terms: []*term{podsIn(namespace, selector)}, staying: true}).tally
}

// spreadsEvenly keeps a pod out of domains that would have too many of its kind
// more than the emptiest: KEP-895, minDomains KEP-3022, node inclusion KEP-3094,
// matchLabelKeys KEP-3243.
func spreadsEvenly(s *Snapshot, r *request) rule {
	constraints, err := s.constraints(r.pod, corev1.DoNotSchedule)
	if err != nil {
		return rule{never: err.Error()}
	}
	if len(constraints) == 0 {
		return rule{}
	}
	levels := s.levels(r, constraints)
	return rule{check: func(n *node, why []string) []string {
		for i := range constraints {
			c := &constraints[i]
			value, ok := n.label(c.key)
			if !ok {
				return append(why, "node(s) didn't match pod topology spread constraints (missing required label)")
			}
			pods := levels[i].values[value]
			if c.self {
				pods++
			}
			if pods-levels[i].least > c.maxSkew {
				return append(why, "node(s) didn't match pod topology spread constraints")
			}
		}
		return why
	}}
}

// level is how full the domains of a constraint are.
type level struct {
	values map[string]int
	// least is the number of pods in the emptiest domain, or 0 if there are fewer
	// domains than the constraint asks for.
	least int
}

// levels finds the level of each constraint. A node counts that has the labels
// of all constraints and is not excluded.
func (s *Snapshot) levels(r *request, constraints []constraint) []level {
	levels := make([]level, len(constraints))
	labelled := s.nodes.haveAll(constraints)
	for i := range constraints {
		c := &constraints[i]
		l := &levels[i]
		all := 0
		if labelled && !c.excludes(r) {
			l.values, all = c.pods.in(c.key).values, len(s.nodes.present.in(c.key).values)
		} else {
			l.values = s.domainsOf(r, c, constraints)
			all = len(l.values)
		}
		l.least = 0
		if all >= c.minDomains && len(l.values) == all {
			l.least = lowest(l.values)
		}
	}
	return levels
}

// domainsOf counts the pods of a constraint in each domain with nodes that
// count, looking at all nodes. Here a domain without pods has a zero.
func (s *Snapshot) domainsOf(r *request, c *constraint, constraints []constraint) map[string]int {
	values := map[string]int{}
	for _, n := range s.nodes.list() {
		if n.hasAll(constraints) && c.includes(n, r) {
			value, _ := n.label(c.key)
			values[value] += c.pods.byNode[n]
		}
	}
	return values
}

// lowest returns the lowest value, 0 if there is none.
func lowest(values map[string]int) int {
	least := math.MaxInt
	for _, pods := range values {
		least = min(least, pods)
	}
	if least == math.MaxInt {
		return 0
	}
	return least
}

// haveAll tells whether all nodes have the labels of all constraints.
func (ns *nodes) haveAll(constraints []constraint) bool {
	for i := range constraints {
		if ns.present.in(constraints[i].key).total < ns.present.total {
			return false
		}
	}
	return true
}

func (n *node) hasAll(constraints []constraint) bool {
	for i := range constraints {
		if _, ok := n.label(constraints[i].key); !ok {
			return false
		}
	}
	return true
}

// Pods that say nothing about spreading are spread all the same if something
// says that they are of one kind: softly over hosts, more softly over zones.
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

// siblings counts the pods that a pod is one of: those of its replica set,
// replication controller or stateful set, or else those of its services. Nil
// means that nothing says so.
//
// The owner's UID stands for its selector here: they are the same pods but for
// orphans, and no selector need be matched.
func (s *Snapshot) siblings(pod *corev1.Pod) *tally {
	owner := spreadingOwner(pod)
	if pods := s.owners[owner]; pods != nil {
		return pods
	}
	if owner != "" {
		return &tally{}
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

// spreadsWell prefers domains with few pods of the kind that the pod's soft
// constraints, or the default ones, speak of.
func spreadsWell(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	constraints, needLabels := []constraint(nil), true
	if len(r.pod.Spec.TopologySpreadConstraints) > 0 {
		var err error
		if constraints, err = s.constraints(r.pod, corev1.ScheduleAnyway); err != nil {
			return false // the filter has said so
		}
	} else {
		constraints, needLabels = s.defaultConstraints(r.pod), false
	}
	if len(constraints) == 0 {
		return false
	}
	// Nodes that miss a label of the pod's own constraints get no points.
	const unlabelled = -1
	labelled := len(nodes)
	if needLabels {
		for i, n := range nodes {
			if !n.hasAll(constraints) {
				scores[i] = unlabelled
				labelled--
			}
		}
	}
	sum := slices.Grow(s.scratch.sums[:0], len(nodes))[:len(nodes)]
	clear(sum)
	s.scratch.sums = sum
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
				sum[j] += float64(pods(n, value))*weight + float64(c.maxSkew-1)
			}
		}
	}
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i := range nodes {
		if scores[i] != unlabelled {
			scores[i] = int64(math.Round(sum[i]))
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
	return true
}

// podsByNode returns a function that tells how many pods of a constraint there
// are in the domain of a node.
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

// valuesOf counts the different values that nodes have of a label, none being
// one of them, leaving out nodes whose score is negative.
func valuesOf(key string, nodes []*node, scores []int64) int {
	// There are few zones, and the nodes of a search take turns in them.
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
