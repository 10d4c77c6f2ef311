package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
)

// ContainerColumns returns the columns with the names and images of a template's
// containers.
func ContainerColumns[T resource.Object](template func(obj T) *corev1.PodTemplateSpec) []resource.Column[T] {
	each := func(of func(c corev1.Container) string) func(obj T) any {
		return func(obj T) any {
			var values []string
			for _, c := range template(obj).Spec.Containers {
				values = append(values, of(c))
			}
			return strings.Join(values, ",")
		}
	}
	return []resource.Column[T]{
		{Name: "Containers", Description: "Names of each container in the template.", Value: each(func(c corev1.Container) string { return c.Name })},
		{Name: "Images", Description: "Images referenced by each container in the template.", Value: each(func(c corev1.Container) string { return c.Image })},
	}
}

// SelectorColumn returns the column with the selector, in the syntax of kubectl -l.
func SelectorColumn[T resource.Object](description string, selector func(obj T) *metav1.LabelSelector) resource.Column[T] {
	return resource.Column[T]{Name: "Selector", Description: description, Value: func(obj T) any { return metav1.FormatLabelSelector(selector(obj)) }}
}
