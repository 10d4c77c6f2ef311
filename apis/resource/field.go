package resource

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fill sets a field that has no value yet, for example a default.
func Fill[V any](at **V, value V) {
	if *at == nil {
		*at = &value
	}
}

// FillEmpty sets a field that is empty, for example to a default.
func FillEmpty[V comparable](at *V, value V) {
	var empty V
	if *at == empty {
		*at = value
	}
}

// OneOf requires a value from an enumeration. The message lists the supported
// values in the order given; Kubernetes sorts them.
func OneOf[V ~string](path *field.Path, value V, supported ...V) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

// Invalid makes an error of each message about a value, for the rules of
// apimachinery that answer with messages.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// PathSegmentName is the name rule of kinds whose names only have to fit into
// a URL, for example roles.
func PathSegmentName(name string, _ bool) []string {
	return content.IsPathSegmentName(name)
}
