// Package apps declares the kinds of the apps group.
package apps

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// Kinds returns the kinds of the apps group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		deployments,
		statefulSets,
		daemonSets,
		replicaSets,
		controllerRevisions,
	}
}

// warnTemplate warns of a new template, and of one that may have changed.
func warnTemplate[P interface {
	*T
	resource.Object
}, T any](obj, old P, template *corev1.PodTemplateSpec) []string {
	if old != nil && obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	return podspec.WarnTemplate(template, field.NewPath("spec", "template"))
}
