package apps

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var replicaSets = resource.Type[*appsv1.ReplicaSet]{
	Name: "replicasets", ShortNames: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
	Default: func(rs *appsv1.ReplicaSet) {
		podspec.DefaultTemplate(&rs.Spec.Template)
		resource.Fill(&rs.Spec.Replicas, 1)
	},
	Validate: validateReplicaSet,
	Restrict: func(env *resource.Env, rs *appsv1.ReplicaSet) field.ErrorList {
		return podspec.Restrict(env, &rs.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	ValidateUpdate: func(rs, old *appsv1.ReplicaSet) field.ErrorList {
		return apivalidation.ValidateImmutableField(rs.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
	},
	Warn: func(rs, old *appsv1.ReplicaSet) []string {
		warnings := warnTemplate(rs, old, &rs.Spec.Template)
		if old == nil {
			warnings = append(workload.NameWarnings(rs.Name), warnings...)
		}
		return warnings
	},
	Generation:     true,
	Status:         true,
	ValidateStatus: validateReplicaSetStatus,
	Scale: &resource.Scale[*appsv1.ReplicaSet]{
		Replicas: func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
		Current:  func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
		Selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
	},
	Columns: slices.Concat([]resource.Column[*appsv1.ReplicaSet]{
		resource.Name[*appsv1.ReplicaSet](),
		{Name: "Desired", Type: "integer", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"],
			Value: func(rs *appsv1.ReplicaSet) any { return int64(ptr.Deref(rs.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"],
			Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"],
			Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.ReadyReplicas) }},
		resource.Age[*appsv1.ReplicaSet](),
	}, resource.Wide(append(
		workload.ContainerColumns(func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template }),
		workload.SelectorColumn(appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"], func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector }),
	)...)),
	Fields: map[string]func(*appsv1.ReplicaSet) string{
		"status.replicas": func(rs *appsv1.ReplicaSet) string { return strconv.Itoa(int(rs.Status.Replicas)) },
	},
}

func validateReplicaSet(rs *appsv1.ReplicaSet) field.ErrorList {
	path := field.NewPath("spec")
	return slices.Concat(
		validateReplicaTemplate(rs.Spec.Replicas, rs.Spec.Selector, &rs.Spec.Template, path),
		workload.ValidateCounts(path, workload.Of("minReadySeconds", rs.Spec.MinReadySeconds)))
}

// validateReplicaTemplate validates what a deployment and its replica sets have
// in common; path is the spec's.
func validateReplicaTemplate(replicas *int32, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := workload.ValidateCounts(path, workload.OfPtr("replicas", replicas))
	if selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	return slices.Concat(errs,
		workload.ValidateSelector(selector, "deployment", path.Child("selector")),
		workload.ValidateSelected(template, selector, path.Child("template")),
		podspec.ValidateTemplate(template, path.Child("template")),
		workload.ValidateEndless(template, "ReplicaSet", path.Child("template")))
}

func validateReplicaSetStatus(rs, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &rs.Status, field.NewPath("status")
	available, ready := workload.Of("availableReplicas", s.AvailableReplicas), workload.Of("readyReplicas", s.ReadyReplicas)
	labeled := workload.Of("fullyLabeledReplicas", s.FullyLabeledReplicas)
	return slices.Concat(
		workload.ValidateCounts(path,
			workload.Of("replicas", s.Replicas), labeled, ready, available,
			workload.Of("observedGeneration", s.ObservedGeneration),
			workload.OfPtr("terminatingReplicas", s.TerminatingReplicas)),
		workload.ValidateAtMost(s.Replicas, "cannot be greater than status.replicas", path, labeled, ready, available),
		workload.ValidateAtMost(s.ReadyReplicas, "cannot be greater than readyReplicas", path, available),
	)
}
