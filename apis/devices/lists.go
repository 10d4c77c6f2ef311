package devices

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// tooMany returns an error if a list has more elements than the limit.
func tooMany(path *field.Path, n, limit int) field.ErrorList {
	if n > limit {
		return field.ErrorList{field.TooMany(path, n, limit)}
	}
	return nil
}

// each validates the elements of a list, unless there are too many.
func each[T any](path *field.Path, list []T, limit int, validate func(*field.Path, *T) field.ErrorList) field.ErrorList {
	errs := tooMany(path, len(list), limit)
	if len(errs) > 0 {
		return errs
	}
	for i := range list {
		errs = append(errs, validate(path.Index(i), &list[i])...)
	}
	return errs
}

// unique returns an error for each element of a list whose key an earlier one has.
func unique[T any, K comparable](path *field.Path, list []T, key func(*T) K) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[K]bool, len(list))
	for i := range list {
		k := key(&list[i])
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

// validateLabel validates the name of a request, a device or a counter.
func validateLabel(path *field.Path, name string) field.ErrorList {
	return resource.Invalid(path, name, validation.IsDNS1123Label(name))
}

// requiredLabel is validateLabel for a name of which an empty one is missing.
func requiredLabel(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateLabel(path, name)
}
