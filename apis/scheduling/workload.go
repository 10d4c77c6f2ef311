package scheduling

import (
	"fmt"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// workloads are templates of groups of pods that are scheduled together (KEP-4671).
var workloads = resource.Type[*schedulingv1beta1.Workload]{
	Name: "workloads", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[schedulingv1beta1.Workload, schedulingv1alpha3.Workload](),
	},
	Validate: func(w *schedulingv1beta1.Workload) field.ErrorList {
		return validateWorkloadSpec(field.NewPath("spec"), &w.Spec)
	},
	ValidateUpdate: func(w, old *schedulingv1beta1.Workload) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(w.Spec.ControllerRef, old.Spec.ControllerRef, path.Child("controllerRef"))
		errs = append(errs, validateTemplatesUpdate(path.Child("podGroupTemplates"), w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates)...)
		return append(errs, validateCompositesUpdate(path.Child("compositePodGroupTemplates"), w.Spec.CompositePodGroupTemplates, old.Spec.CompositePodGroupTemplates)...)
	},
	Columns: []resource.Column[*schedulingv1beta1.Workload]{
		resource.Name[*schedulingv1beta1.Workload](),
		resource.Age[*schedulingv1beta1.Workload](),
	},
}

func validateWorkloadSpec(path *field.Path, spec *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	groups, composites := path.Child("podGroupTemplates"), path.Child("compositePodGroupTemplates")
	errs := oneOf(path, member{"podGroupTemplates", len(spec.PodGroupTemplates) > 0}, member{"compositePodGroupTemplates", len(spec.CompositePodGroupTemplates) > 0})
	if ref := spec.ControllerRef; ref != nil {
		errs = append(errs, validateControllerRef(path.Child("controllerRef"), ref)...)
	}
	errs = append(errs, validateTemplates(groups, spec.PodGroupTemplates)...)
	errs = append(errs, validateComposites(composites, spec.CompositePodGroupTemplates)...)
	for i := range spec.CompositePodGroupTemplates {
		if depth(&spec.CompositePodGroupTemplates[i]) > schedulingv1beta1.WorkloadMaxTreeDepth {
			errs = append(errs, field.Invalid(composites.Index(i), field.OmitValueType{}, fmt.Sprintf("maximum template hierarchy depth is %d", schedulingv1beta1.WorkloadMaxTreeDepth)))
		}
	}
	errs = append(errs, validateNames(path, spec)...)
	return append(errs, validatePriorities(path, spec)...)
}

func validateControllerRef(path *field.Path, ref *schedulingv1beta1.TypedLocalObjectReference) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup != "" {
		errs = append(errs, resource.Invalid(path.Child("apiGroup"), ref.APIGroup, content.IsDNS1123Subdomain(ref.APIGroup))...)
	}
	errs = append(errs, required(path.Child("kind"), ref.Kind, content.IsPathSegmentName)...)
	return append(errs, required(path.Child("name"), ref.Name, content.IsPathSegmentName)...)
}

// depth returns the number of levels of a template and of those in it, with one for the
// groups of pods.
func depth(t *schedulingv1beta1.CompositePodGroupTemplate) int {
	deepest := 1
	for i := range t.CompositePodGroupTemplates {
		deepest = max(deepest, depth(&t.CompositePodGroupTemplates[i]))
	}
	return deepest + 1
}

// validateNames requires that the names of all templates in composite ones differ. Those of
// one list are compared where that is validated.
func validateNames(path *field.Path, spec *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	var errs field.ErrorList
	lists := map[string]string{} // the paths of the lists, by name
	check := func(list, item *field.Path, name string) {
		if first, ok := lists[name]; ok && first != list.String() {
			errs = append(errs, field.Duplicate(item.Child("name"), name))
			return
		}
		lists[name] = list.String()
	}
	var walk func(at *field.Path, templates []schedulingv1beta1.CompositePodGroupTemplate)
	walk = func(at *field.Path, templates []schedulingv1beta1.CompositePodGroupTemplate) {
		for i := range templates {
			t, item := &templates[i], at.Index(i)
			check(at, item, t.Name)
			walk(item.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates)
			groups := item.Child("podGroupTemplates")
			for j := range t.PodGroupTemplates {
				check(groups, groups.Index(j), t.PodGroupTemplates[j].Name)
			}
		}
	}
	walk(path.Child("compositePodGroupTemplates"), spec.CompositePodGroupTemplates)
	return errs
}

// validatePriorities requires that all templates of a workload have the same priority.
func validatePriorities(path *field.Path, spec *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	type priority struct {
		class string
		isSet bool
		value int32
	}
	all := map[priority]bool{}
	add := func(class string, value *int32) { all[priority{class, value != nil, ptr.Deref(value, 0)}] = true }
	var walk func(groups []schedulingv1beta1.PodGroupTemplate, composites []schedulingv1beta1.CompositePodGroupTemplate)
	walk = func(groups []schedulingv1beta1.PodGroupTemplate, composites []schedulingv1beta1.CompositePodGroupTemplate) {
		for i := range groups {
			add(groups[i].PriorityClassName, groups[i].Priority)
		}
		for i := range composites {
			add(composites[i].PriorityClassName, composites[i].Priority)
			walk(composites[i].PodGroupTemplates, composites[i].CompositePodGroupTemplates)
		}
	}
	walk(spec.PodGroupTemplates, spec.CompositePodGroupTemplates)
	if len(all) > 1 {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "detected multiple priority configurations")}
	}
	return nil
}
