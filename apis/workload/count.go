package workload

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Count is a field with a number of pods or other objects.
type Count struct {
	// Name is the field's name below its parent.
	Name  string
	Value int64
}

// Of makes a Count.
func Of[N ~int32 | ~int64](name string, value N) Count {
	return Count{name, int64(value)}
}

// OfPtr makes a Count of a field that may be unset, which counts as zero.
func OfPtr[N ~int32 | ~int64](name string, value *N) Count {
	return Count{name, int64(ptr.Deref(value, 0))}
}

// ValidateCounts requires that none is negative; path is their parent's.
func ValidateCounts(path *field.Path, counts ...Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = slices.Concat(errs, apivalidation.ValidateNonnegativeField(c.Value, path.Child(c.Name)))
	}
	return errs
}

// ValidateAtMost requires that no count exceeds the limit; msg says what the
// limit is, and path is the parent's.
func ValidateAtMost(limit int32, msg string, path *field.Path, counts ...Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		if c.Value > int64(limit) {
			errs = append(errs, field.Invalid(path.Child(c.Name), c.Value, msg))
		}
	}
	return errs
}

// ValidateNotDecremented requires that a counter, once set, is not unset and does
// not decrease.
func ValidateNotDecremented(now, before *int32, path *field.Path) field.ErrorList {
	if before == nil || now != nil && *now >= *before {
		return nil
	}
	return field.ErrorList{field.Invalid(path, ptr.Deref(now, 0), "cannot be decremented")}
}
