// Package defaultclass finds the default class of a kind of classes, for the
// admission plugins that set it.
package defaultclass

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Newest returns the default class: of several, the newest and, among those of one
// second, the first by name. It reports whether there is one. A class is a default
// if one of the annotations is "true".
func Newest[Class metav1.Object](classes []Class, annotations ...string) (newest Class, found bool) {
	defaults := slices.DeleteFunc(slices.Clone(classes), func(c Class) bool {
		return !slices.ContainsFunc(annotations, func(name string) bool { return c.GetAnnotations()[name] == "true" })
	})
	if len(defaults) == 0 {
		return newest, false
	}
	return slices.MinFunc(defaults, func(a, b Class) int {
		return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	}), true
}
