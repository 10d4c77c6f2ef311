package clusterroleaggregation

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// change is the rules that a role has to have.
type change struct {
	role  *rbacv1.ClusterRole
	rules []rbacv1.PolicyRule
}

// decide returns the changes of the roles with an aggregationRule, in the order of
// their names. Their rules follow from those of the other roles alone: a role that
// aggregates another one of them gets that one's new rules, too, and a second sync
// changes nothing, also if roles aggregate each other.
func decide(roles []rbacv1.ClusterRole) []change {
	sorted := slices.SortedFunc(slices.Values(roles), func(a, b rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	rules := make([][]rbacv1.PolicyRule, len(sorted))
	var aggregating []int
	for i := range sorted {
		if sorted[i].AggregationRule == nil {
			rules[i] = sorted[i].Rules
		} else {
			aggregating = append(aggregating, i)
		}
	}
	for range aggregating { // a chain of them is at most as long
		settled := true
		for _, i := range aggregating {
			aggregated := aggregate(sorted, rules, i)
			settled = settled && equality.Semantic.DeepEqual(aggregated, rules[i])
			rules[i] = aggregated
		}
		if settled {
			break
		}
	}
	var changes []change
	for _, i := range aggregating {
		if !equality.Semantic.DeepEqual(rules[i], sorted[i].Rules) {
			changes = append(changes, change{&sorted[i], rules[i]})
		}
	}
	return changes
}

// aggregate returns the rules that role i gets from the others: in the order of its
// selectors and of the roles' names, each rule once.
func aggregate(roles []rbacv1.ClusterRole, rules [][]rbacv1.PolicyRule, i int) []rbacv1.PolicyRule {
	var aggregated []rbacv1.PolicyRule
	for _, s := range roles[i].AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			continue // the API server has validated it
		}
		for other := range roles {
			if other == i || !selector.Matches(labels.Set(roles[other].Labels)) {
				continue
			}
			for _, rule := range rules[other] {
				if !slices.ContainsFunc(aggregated, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					aggregated = append(aggregated, rule)
				}
			}
		}
	}
	return aggregated
}
