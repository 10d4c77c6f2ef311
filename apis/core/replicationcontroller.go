package core

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var replicationControllers = resource.Type[*corev1.ReplicationController]{
	Name: "replicationcontrollers", ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true,
	Default:  defaultReplicationController,
	Validate: validateReplicationController,
	Restrict: func(env *resource.Env, c *corev1.ReplicationController) field.ErrorList {
		if c.Spec.Template == nil {
			return nil
		}
		return podspec.Restrict(env, &c.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	Warn:           warnReplicationController,
	Generation:     true,
	Status:         true,
	ValidateStatus: validateReplicationControllerStatus,
	// As for all old versions, deletion orphans the pods by default.
	OrphanByDefault: true,
	Scale: &resource.Scale[*corev1.ReplicationController]{
		Replicas: func(c *corev1.ReplicationController) **int32 { return &c.Spec.Replicas },
		Current:  func(c *corev1.ReplicationController) int32 { return c.Status.Replicas },
		Selector: func(c *corev1.ReplicationController) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: c.Spec.Selector}
		},
	},
	Fields: map[string]func(*corev1.ReplicationController) string{
		"status.replicas": func(c *corev1.ReplicationController) string { return strconv.Itoa(int(c.Status.Replicas)) },
	},
	Columns: append([]resource.Column[*corev1.ReplicationController]{
		resource.Name[*corev1.ReplicationController](),
		{Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"],
			Value: func(c *corev1.ReplicationController) any { return int64(ptr.Deref(c.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"],
			Value: func(c *corev1.ReplicationController) any { return int64(c.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"],
			Value: func(c *corev1.ReplicationController) any { return int64(c.Status.ReadyReplicas) }},
		resource.Age[*corev1.ReplicationController](),
	}, resource.Wide(append(workload.ContainerColumns(templateOfController),
		resource.Column[*corev1.ReplicationController]{Name: "Selector", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"],
			Value: func(c *corev1.ReplicationController) any { return labels.FormatLabels(c.Spec.Selector) }})...)...),
}

// templateOfController returns the controller's template, or an empty one.
func templateOfController(c *corev1.ReplicationController) *corev1.PodTemplateSpec {
	if c.Spec.Template == nil {
		return &corev1.PodTemplateSpec{}
	}
	return c.Spec.Template
}

// defaultReplicationController sets missing labels and a missing selector of the
// controller to the labels of the template.
func defaultReplicationController(c *corev1.ReplicationController) {
	resource.Fill(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	podspec.DefaultTemplate(c.Spec.Template)
	if len(c.Spec.Selector) == 0 {
		c.Spec.Selector = maps.Clone(c.Spec.Template.Labels)
	}
	if len(c.Labels) == 0 {
		c.Labels = maps.Clone(c.Spec.Template.Labels)
	}
}

func validateReplicationController(c *corev1.ReplicationController) field.ErrorList {
	path, spec := field.NewPath("spec"), &c.Spec
	errs := apivalidation.ValidateNonnegativeField(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	} else {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*spec.Replicas), path.Child("replicas"))...)
	}
	path = path.Child("template")
	if spec.Template == nil {
		return append(errs, field.Required(path, ""))
	}
	if !labels.Set(spec.Selector).AsSelectorPreValidated().Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, podspec.ValidateTemplate(spec.Template, path)...)
	return append(errs, workload.ValidateEndless(spec.Template, "ReplicationController", path)...)
}

func validateReplicationControllerStatus(c, _ *corev1.ReplicationController) field.ErrorList {
	s, path := &c.Status, field.NewPath("status")
	errs := workload.ValidateCounts(path,
		workload.Of("replicas", s.Replicas),
		workload.Of("fullyLabeledReplicas", s.FullyLabeledReplicas),
		workload.Of("readyReplicas", s.ReadyReplicas),
		workload.Of("availableReplicas", s.AvailableReplicas),
		workload.Of("observedGeneration", s.ObservedGeneration))
	errs = append(errs, workload.ValidateAtMost(s.Replicas, "cannot be greater than status.replicas", path,
		workload.Of("fullyLabeledReplicas", s.FullyLabeledReplicas),
		workload.Of("readyReplicas", s.ReadyReplicas),
		workload.Of("availableReplicas", s.AvailableReplicas))...)
	return append(errs, workload.ValidateAtMost(s.ReadyReplicas, "cannot be greater than readyReplicas", path,
		workload.Of("availableReplicas", s.AvailableReplicas))...)
}

func warnReplicationController(c, old *corev1.ReplicationController) []string {
	if old != nil {
		if apiequality.Semantic.DeepEqual(c.Spec, old.Spec) {
			return nil
		}
		return podspec.WarnTemplate(c.Spec.Template, field.NewPath("spec", "template"))
	}
	return append(workload.NameWarnings(c.Name), podspec.WarnTemplate(c.Spec.Template, field.NewPath("spec", "template"))...)
}
