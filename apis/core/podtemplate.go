package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var podTemplates = resource.Type[*corev1.PodTemplate]{
	Name: "podtemplates", Namespaced: true, ReturnDeleted: true,
	Default: func(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) },
	Validate: func(t *corev1.PodTemplate) field.ErrorList {
		return podspec.ValidateTemplate(&t.Template, field.NewPath("template"))
	},
	Restrict: func(env *resource.Env, t *corev1.PodTemplate) field.ErrorList {
		return podspec.Restrict(env, &t.Template.Spec, field.NewPath("template", "spec"))
	},
	Warn: func(t, _ *corev1.PodTemplate) []string {
		return podspec.WarnTemplate(&t.Template, field.NewPath("template"))
	},
	Generation: true,
	Columns: append(append([]resource.Column[*corev1.PodTemplate]{resource.Name[*corev1.PodTemplate]()},
		workload.ContainerColumns(func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template })...),
		resource.Column[*corev1.PodTemplate]{Name: "Pod Labels", Description: "The labels for the pod template.",
			Value: func(t *corev1.PodTemplate) any { return labels.FormatLabels(t.Template.Labels) }}),
}
