package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// scopeOperators are the selectors' operators under the names of labels'.
func scopeOperator(o corev1.ScopeSelectorOperator) (selection.Operator, error) {
	switch o {
	case corev1.ScopeSelectorOpIn:
		return selection.In, nil
	case corev1.ScopeSelectorOpNotIn:
		return selection.NotIn, nil
	case corev1.ScopeSelectorOpExists:
		return selection.Exists, nil
	case corev1.ScopeSelectorOpDoesNotExist:
		return selection.DoesNotExist, nil
	}
	return "", fmt.Errorf("%q is not a valid scope selector operator", o)
}

// named reports whether a requirement on names holds for one of them, or for none
// if there is none.
func named(s corev1.ScopedResourceSelectorRequirement, names ...string) (bool, error) {
	operator, err := scopeOperator(s.Operator)
	if err != nil {
		return false, err
	}
	requirement, err := labels.NewRequirement(string(s.ScopeName), operator, s.Values)
	if err != nil {
		return false, err
	}
	if len(names) == 0 {
		return requirement.Matches(labels.Set{}), nil
	}
	for _, name := range names {
		if requirement.Matches(labels.Set{string(s.ScopeName): name}) {
			return true, nil
		}
	}
	return false, nil
}
