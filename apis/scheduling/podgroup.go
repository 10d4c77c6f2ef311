package scheduling

import (
	"slices"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// podGroups are groups of pods that are scheduled together (KEP-4671).
var podGroups = resource.Type[*schedulingv1beta1.PodGroup]{
	Name: "podgroups", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[schedulingv1beta1.PodGroup, schedulingv1alpha3.PodGroup](),
	},
	Default: func(g *schedulingv1beta1.PodGroup) {
		resource.Fill(&g.Spec.DisruptionMode, schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}})
	},
	Validate: func(g *schedulingv1beta1.PodGroup) field.ErrorList {
		path := field.NewPath("spec")
		errs := optional(path.Child("parentCompositePodGroupName"), g.Spec.ParentCompositePodGroupName)
		errs = append(errs, validateWorkloadRef(path.Child("workloadRef"), g.Spec.WorkloadRef)...)
		return append(errs, validateTemplate(path, groupTemplate(&g.Spec))...)
	},
	ValidateUpdate: func(g, old *schedulingv1beta1.PodGroup) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(g.Spec.ParentCompositePodGroupName, old.Spec.ParentCompositePodGroupName, path.Child("parentCompositePodGroupName"))
		errs = append(errs, apivalidation.ValidateImmutableField(g.Spec.WorkloadRef, old.Spec.WorkloadRef, path.Child("workloadRef"))...)
		return append(errs, validateTemplateUpdate(path, groupTemplate(&g.Spec), groupTemplate(&old.Spec))...)
	},
	Status:     true,
	StatusOnly: true,
	ValidateStatus: func(g, _ *schedulingv1beta1.PodGroup) field.ErrorList {
		path := field.NewPath("status")
		errs := metav1validation.ValidateConditions(g.Status.Conditions, path.Child("conditions"))
		return append(errs, validateClaimStatuses(path.Child("resourceClaimStatuses"), g)...)
	},
	Columns: []resource.Column[*schedulingv1beta1.PodGroup]{
		resource.Name[*schedulingv1beta1.PodGroup](),
		{Name: "Policy", Description: schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"],
			Value: func(g *schedulingv1beta1.PodGroup) any { return policyName(g.Spec.SchedulingPolicy.Gang != nil) }},
		{Name: "Workload", Description: "Name of the referenced Workload object",
			Value: func(g *schedulingv1beta1.PodGroup) any { return workloadName(g.Spec.WorkloadRef) }},
		{Name: "Status", Description: "Status of the PodGroup", Value: func(g *schedulingv1beta1.PodGroup) any {
			return scheduled(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
		}},
		resource.Age[*schedulingv1beta1.PodGroup](),
	},
}

// groupTemplate returns the fields that a group has in common with its template.
func groupTemplate(spec *schedulingv1beta1.PodGroupSpec) *schedulingv1beta1.PodGroupTemplate {
	var t schedulingv1beta1.PodGroupTemplate
	resource.CopyFields(spec, &t)
	return &t
}

func validateWorkloadRef(path *field.Path, ref *schedulingv1beta1.WorkloadReference) field.ErrorList {
	if ref == nil {
		return nil
	}
	errs := required(path.Child("workloadName"), ref.WorkloadName, content.IsDNS1123Subdomain)
	return append(errs, required(path.Child("templateName"), ref.TemplateName, content.IsDNS1123Label)...)
}

// validateClaimStatuses requires that statuses are those of the group's claims.
func validateClaimStatuses(path *field.Path, g *schedulingv1beta1.PodGroup) field.ErrorList {
	statuses := g.Status.ResourceClaimStatuses
	if len(statuses) > schedulingv1beta1.MaxPodGroupResourceClaims {
		return field.ErrorList{field.TooMany(path, len(statuses), schedulingv1beta1.MaxPodGroupResourceClaims)}
	}
	errs := unique(path, statuses, func(s *schedulingv1beta1.PodGroupResourceClaimStatus) string { return s.Name })
	for i, status := range statuses {
		if !slices.ContainsFunc(g.Spec.ResourceClaims, func(c schedulingv1beta1.PodGroupResourceClaim) bool { return c.Name == status.Name }) {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), status.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		errs = append(errs, optional(path.Index(i).Child("resourceClaimName"), status.ResourceClaimName)...)
	}
	return errs
}

// policyName returns the policy of a group as tables show it.
func policyName(gang bool) string {
	if gang {
		return "Gang"
	}
	return "Basic"
}

// workloadName returns the workload of a group as tables show it.
func workloadName(ref *schedulingv1beta1.WorkloadReference) string {
	if ref == nil {
		return "<none>"
	}
	return ref.WorkloadName
}

// scheduled returns the state of a group as tables show it, by its conditions, of which one
// tells that the group has been scheduled.
func scheduled(conditions []metav1.Condition, condition string) string {
	state := "Pending"
	for _, c := range conditions {
		switch {
		case c.Type == schedulingv1beta1.DisruptionTarget:
			return c.Reason
		case c.Type == condition && c.Status == metav1.ConditionTrue:
			state = "Scheduled"
		case c.Type == condition:
			state = "Unschedulable"
		}
	}
	return state
}
