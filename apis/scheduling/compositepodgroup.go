package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// compositeScheduled is the condition of a group that has been scheduled.
const compositeScheduled = "CompositePodGroupInitiallyScheduled"

// compositePodGroups are groups of PodGroups, and of other such groups.
var compositePodGroups = resource.Type[*schedulingv1alpha3.CompositePodGroup]{
	Name: "compositepodgroups", Namespaced: true,
	Default: func(g *schedulingv1alpha3.CompositePodGroup) {
		resource.Fill(&g.Spec.DisruptionMode, schedulingv1alpha3.CompositeDisruptionMode{Single: &schedulingv1alpha3.SingleCompositeDisruptionMode{}})
	},
	Validate: func(g *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
		path := field.NewPath("spec")
		errs := optional(path.Child("parentCompositePodGroupName"), g.Spec.ParentCompositePodGroupName)
		if g.Spec.WorkloadRef == nil {
			errs = append(errs, field.Required(path.Child("workloadRef"), ""))
		}
		errs = append(errs, validateWorkloadRef(path.Child("workloadRef"), workloadRef(g))...)
		return append(errs, validateComposite(path, compositeTemplate(&g.Spec))...)
	},
	ValidateUpdate: func(g, old *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(g.Spec.ParentCompositePodGroupName, old.Spec.ParentCompositePodGroupName, path.Child("parentCompositePodGroupName"))
		errs = append(errs, apivalidation.ValidateImmutableField(g.Spec.WorkloadRef, old.Spec.WorkloadRef, path.Child("workloadRef"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(g.Spec.SchedulingPolicy, old.Spec.SchedulingPolicy, path.Child("schedulingPolicy"))...)
		return append(errs, validateCommonUpdate(path, commonOfComposite(compositeTemplate(&g.Spec)), commonOfComposite(compositeTemplate(&old.Spec)))...)
	},
	RequireVersion: true,
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: func(g, _ *schedulingv1alpha3.CompositePodGroup) field.ErrorList {
		return metav1validation.ValidateConditions(g.Status.Conditions, field.NewPath("status", "conditions"))
	},
	Columns: []resource.Column[*schedulingv1alpha3.CompositePodGroup]{
		resource.Name[*schedulingv1alpha3.CompositePodGroup](),
		{Name: "Policy", Description: schedulingv1alpha3.CompositePodGroupSpec{}.SwaggerDoc()["schedulingPolicy"],
			Value: func(g *schedulingv1alpha3.CompositePodGroup) any {
				return policyName(g.Spec.SchedulingPolicy.Gang != nil)
			}},
		{Name: "Workload", Description: "Name of the referenced Workload object",
			Value: func(g *schedulingv1alpha3.CompositePodGroup) any { return workloadName(workloadRef(g)) }},
		{Name: "Status", Description: "Status of the CompositePodGroup", Value: func(g *schedulingv1alpha3.CompositePodGroup) any {
			return scheduled(g.Status.Conditions, compositeScheduled)
		}},
		resource.Age[*schedulingv1alpha3.CompositePodGroup](),
	},
}

// workloadRef returns the reference of a group in the form of v1beta1, or nil.
func workloadRef(g *schedulingv1alpha3.CompositePodGroup) *schedulingv1beta1.WorkloadReference {
	if g.Spec.WorkloadRef == nil {
		return nil
	}
	return &schedulingv1beta1.WorkloadReference{WorkloadName: g.Spec.WorkloadRef.WorkloadName, TemplateName: g.Spec.WorkloadRef.TemplateName}
}

// compositeTemplate returns the fields that a group has in common with its template.
func compositeTemplate(spec *schedulingv1alpha3.CompositePodGroupSpec) *schedulingv1beta1.CompositePodGroupTemplate {
	var t schedulingv1beta1.CompositePodGroupTemplate
	resource.CopyFields(spec, &t)
	return &t
}
