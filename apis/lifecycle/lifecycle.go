// Package lifecycle declares the kinds of the lifecycle.k8s.io group, by which pods are
// evicted in a way that their responders take part in (KEP-4563).
package lifecycle

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// Kinds returns the kinds of the lifecycle.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		evictions,
		evictionRequests,
	}
}

// maxConditions is how many conditions a status has.
const maxConditions = 100

// validateTarget requires the pod that is to be evicted.
func validateTarget(path *field.Path, isSet bool, name string, uid types.UID) field.ErrorList {
	if !isSet {
		return field.ErrorList{field.Invalid(path, "", "must specify one of: `pod`")}
	}
	pod := path.Child("pod")
	errs := resource.Required(pod.Child("name"), name)
	if name != "" {
		errs = append(errs, resource.Invalid(pod.Child("name"), name, content.IsDNS1123Subdomain(name))...)
	}
	if uid == "" {
		return append(errs, field.Required(pod.Child("uid"), ""))
	}
	return append(errs, validate.UUID(context.Background(), operation.Operation{}, pod.Child("uid"), &uid, nil)...)
}

// validateObserved allows the observed generation to grow.
func validateObserved(path *field.Path, observed, old *int64) field.ErrorList {
	switch {
	case observed == nil && old != nil:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "field cannot be cleared once set")}
	case observed == nil:
		return nil
	case *observed < 1:
		return field.ErrorList{field.Invalid(path, *observed, content.MinError(1))}
	}
	return validate.Monotonic(context.Background(), operation.Operation{Type: operation.Update}, path, observed, old)
}

func validateConditions(path *field.Path, conditions []metav1.Condition) field.ErrorList {
	if len(conditions) > maxConditions {
		return field.ErrorList{field.TooMany(path, len(conditions), maxConditions)}
	}
	return metav1validation.ValidateConditions(conditions, path)
}

// unique requires that the names of the elements of a list differ, and that there are not
// too many.
func unique[T any](path *field.Path, list []T, limit int, name func(*T) string) field.ErrorList {
	if len(list) > limit {
		return field.ErrorList{field.TooMany(path, len(list), limit)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range list {
		if n := name(&list[i]); seen[n] {
			errs = append(errs, field.Duplicate(path.Index(i), n))
		}
		seen[name(&list[i])] = true
	}
	return errs
}

// immutable requires that a field keeps its value.
func immutable(path *field.Path, value, old any) field.ErrorList {
	return apivalidation.ValidateImmutableField(value, old, path)
}
