package decision

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// constraint is a topology spread constraint of a pod, parsed.
type constraint struct {
	key                 string
	maxSkew, minDomains int
	// pods are those to be spread, and self reports whether the pod itself is one of
	// them.
	pods *podCount
	self bool
	// onlyMatching and onlyTolerated exclude the nodes that the pod's node affinity or
	// taints reject.
	onlyMatching, onlyTolerated bool
}

// excludes reports whether the constraint excludes some nodes that have the label.
func (c *constraint) excludes(r *request) bool {
	return c.onlyMatching && r.selectsNodes() || c.onlyTolerated
}

// includes reports whether a node that has the label counts.
func (c *constraint) includes(n *node, r *request) bool {
	return n.object != nil &&
		(!c.onlyMatching || r.matches(n)) &&
		(!c.onlyTolerated || toleratesAll(r.pod.Spec.Tolerations, n.taints))
}

// constraints returns the pod's constraints that are required (DoNotSchedule) or
// preferred (ScheduleAnyway).
func (s *Snapshot) constraints(r *request, action corev1.UnsatisfiableConstraintAction) ([]constraint, error) {
	pod := r.pod
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		return s.listedConstraints(r, action), nil
	}
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
func (s *Snapshot) stayingPods(namespace string, selector labels.Selector) *podCount {
	if selector.Empty() {
		return &podCount{}
	}
	return &s.countOf(selection{terms: []*term{podsIn(namespace, selector)}, staying: true}).podCount
}

// spreadsEvenly rejects domains that would exceed maxSkew, compared with the domain
// with the fewest pods: KEP-895, minDomains KEP-3022, node inclusion KEP-3094,
// matchLabelKeys KEP-3243.
func spreadsEvenly(s *Snapshot, r *request) rule {
	constraints, err := s.constraints(r, corev1.DoNotSchedule)
	if err != nil {
		return rule{podReason: err.Error()}
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
				return append(why, missingTopologyLabel)
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

// level is the numbers of pods in the domains of a constraint.
type level struct {
	values map[string]int
	// least is the smallest number of pods in a domain, or 0 if there are fewer domains
	// than minDomains.
	least int
}

// levels returns the level of each constraint. A node counts that has the labels
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

// domainsOf counts the pods of a constraint in each domain with nodes that count, by
// iterating over all nodes. A domain without pods has a zero.
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

// haveAll reports whether all nodes have the labels of all constraints.
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
