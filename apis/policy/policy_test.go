package policy

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestGolden(t *testing.T) {
	resourcetest.Golden(t, Kinds())
}

func TestValidatePodDisruptionBudget(t *testing.T) {
	for _, test := range []struct {
		rule string
		spec policyv1.PodDisruptionBudgetSpec
		want []string
	}{
		{"nothing is required", policyv1.PodDisruptionBudgetSpec{}, nil},
		{"an empty selector is allowed", policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}, MaxUnavailable: ptr.To(intstr.FromInt32(0))}, nil},
		{"minAvailable and maxUnavailable exclude each other", policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromString("50%"))}, []string{
			`spec: Invalid value: {"minAvailable":1,"maxUnavailable":"50%"}: minAvailable and maxUnavailable cannot be both set`,
		}},
		{"minAvailable is at most 100%", policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("120%"))}, []string{
			`spec.minAvailable: Invalid value: "120%": must not be greater than 100%`,
		}},
		{"maxUnavailable is not negative", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(-1))}, []string{
			"spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
		}},
		{"maxUnavailable is a number or a percentage", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("some"))}, []string{
			`spec.maxUnavailable: Invalid value: "some": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')`,
		}},
		{"the selector is valid", policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}}}, []string{
			"spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
		}},
		{"the policy for unhealthy pods is known", policyv1.PodDisruptionBudgetSpec{UnhealthyPodEvictionPolicy: ptr.To(policyv1.UnhealthyPodEvictionPolicyType("Never"))}, []string{
			`spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"`,
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			resourcetest.Errors(t, validatePodDisruptionBudget(&policyv1.PodDisruptionBudget{Spec: test.spec}), test.want...)
		})
	}
}

func TestValidatePodDisruptionBudgetStatus(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{
		DisruptionsAllowed: -1, ExpectedPods: -2,
		Conditions: []metav1.Condition{{Type: "DisruptionAllowed", Status: metav1.ConditionTrue, Reason: "SufficientPods"}},
	}}
	resourcetest.Errors(t, validatePodDisruptionBudgetStatus(b, nil),
		"status.conditions[0].lastTransitionTime: Required value",
		"status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
		"status.expectedPods: Invalid value: -2: must be greater than or equal to 0")
}

func TestANameOfAPodDisruptionBudgetOnlyHasToFitIntoAURL(t *testing.T) {
	rule := podDisruptionBudgets.Kind().NameRule
	if msgs := rule("At least one", false); len(msgs) > 0 {
		t.Error(msgs)
	}
	if msgs := rule("a/b", false); len(msgs) == 0 {
		t.Error("a slash is accepted")
	}
}
