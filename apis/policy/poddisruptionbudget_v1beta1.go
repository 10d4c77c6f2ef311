package policy

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// emptySelectorKey is the label in the selectors by which each version says what the
// other means by an empty one: in v1 an empty selector selects all pods, in v1beta1
// none (document 2, section 9).
const emptySelectorKey = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

func emptySelector(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: emptySelectorKey, Operator: operator}}}
}

func budgetFromV1beta1(in *policyv1beta1.PodDisruptionBudget, out *policyv1.PodDisruptionBudget) error {
	resource.CopyFields(in, out)
	out.Spec.Selector = translateEmpty(in.Spec.Selector, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	return nil
}

func budgetToV1beta1(in *policyv1.PodDisruptionBudget, out *policyv1beta1.PodDisruptionBudget) error {
	resource.CopyFields(in, out)
	out.Spec.Selector = translateEmpty(in.Spec.Selector, metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpExists)
	return nil
}

// validateStatusV1beta1 validates the conditions alone: clients of v1beta1 may write negative
// counts.
func validateStatusV1beta1(_ string, obj, _ runtime.Object) field.ErrorList {
	return metav1validation.ValidateConditions(obj.(*policyv1.PodDisruptionBudget).Status.Conditions, field.NewPath("status", "conditions"))
}

// translateEmpty returns a selector in the other version: to is the operator by which
// that version says what an empty selector is here, from the one by which this version
// says what an empty one is there. Beside other requirements the label says nothing.
func translateEmpty(s *metav1.LabelSelector, to, from metav1.LabelSelectorOperator) *metav1.LabelSelector {
	switch {
	case s == nil:
		return nil
	case len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0:
		return emptySelector(to)
	case apiequality.Semantic.DeepEqual(s, emptySelector(from)):
		return &metav1.LabelSelector{}
	case len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 1:
		return s
	}
	return &metav1.LabelSelector{
		MatchLabels:      s.MatchLabels,
		MatchExpressions: slices.DeleteFunc(slices.Clone(s.MatchExpressions), func(r metav1.LabelSelectorRequirement) bool { return r.Key == emptySelectorKey }),
	}
}

// removeEmptySelectorKey removes the label from a selector of v1, unless that is the one that
// selects no pods.
func removeEmptySelectorKey(s *metav1.LabelSelector) {
	if s != nil && !apiequality.Semantic.DeepEqual(s, emptySelector(metav1.LabelSelectorOpExists)) {
		s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == emptySelectorKey })
	}
}
