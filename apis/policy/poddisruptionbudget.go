package policy

import (
	"context"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var podDisruptionBudgets = resource.Type[*policyv1.PodDisruptionBudget]{
	Name: "poddisruptionbudgets", ShortNames: []string{"pdb"}, Namespaced: true, AnyFinalizer: true,
	Versions: []resource.Version{resource.Convert(budgetFromV1beta1, budgetToV1beta1).ViewsValidatedBy(validateStatusV1beta1)},
	NameRule: resource.PathSegmentName,
	PrepareCreate: func(_ context.Context, _ *resource.Env, b *policyv1.PodDisruptionBudget) {
		removeEmptySelectorKey(b.Spec.Selector)
	},
	PrepareUpdate: func(_ context.Context, _ *resource.Env, b, old *policyv1.PodDisruptionBudget) {
		if !apiequality.Semantic.DeepEqual(b.Spec.Selector, old.Spec.Selector) {
			removeEmptySelectorKey(b.Spec.Selector)
		}
	},
	Validate:       validatePodDisruptionBudget,
	Generation:     true,
	Status:         true,
	ValidateStatus: validatePodDisruptionBudgetStatus,
	// The eviction subresource decrements disruptionsAllowed in the status: an
	// update must not overwrite a status that its writer has not read.
	RequireVersion: true,
	Columns: []resource.Column[*policyv1.PodDisruptionBudget]{
		resource.Name[*policyv1.PodDisruptionBudget](),
		{Name: "Min Available", Description: "The minimum number of pods that must be available.",
			Value: func(b *policyv1.PodDisruptionBudget) any { return limit(b.Spec.MinAvailable) }},
		{Name: "Max Unavailable", Description: "The maximum number of pods that may be unavailable.",
			Value: func(b *policyv1.PodDisruptionBudget) any { return limit(b.Spec.MaxUnavailable) }},
		{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time.",
			Value: func(b *policyv1.PodDisruptionBudget) any { return int64(b.Status.DisruptionsAllowed) }},
		resource.Age[*policyv1.PodDisruptionBudget](),
	},
}

func limit(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

func validatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	spec, path := &b.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = slices.Concat(errs,
		workload.ValidateIntOrPercent(spec.MinAvailable, path.Child("minAvailable")),
		workload.ValidateAtMost100Percent(spec.MinAvailable, path.Child("minAvailable")),
		workload.ValidateIntOrPercent(spec.MaxUnavailable, path.Child("maxUnavailable")),
		workload.ValidateAtMost100Percent(spec.MaxUnavailable, path.Child("maxUnavailable")),
		metav1validation.ValidateLabelSelector(spec.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector")))
	if p := spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = slices.Concat(errs, resource.OneOf(path.Child("unhealthyPodEvictionPolicy"), *p, policyv1.AlwaysAllow, policyv1.IfHealthyBudget))
	}
	return errs
}

func validatePodDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, path := &b.Status, field.NewPath("status")
	return slices.Concat(
		metav1validation.ValidateConditions(s.Conditions, path.Child("conditions")),
		workload.ValidateCounts(path,
			workload.Of("disruptionsAllowed", s.DisruptionsAllowed),
			workload.Of("currentHealthy", s.CurrentHealthy),
			workload.Of("desiredHealthy", s.DesiredHealthy),
			workload.Of("expectedPods", s.ExpectedPods)))
}
