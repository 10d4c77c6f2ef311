package workload

import (
	"strconv"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// ValidateIntOrPercent requires a number of pods, zero or more, or a
// percentage of them, such as 5 or "5%". Nil is accepted.
func ValidateIntOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	return resource.Invalid(path, *v, validation.IsValidPercent(v.StrVal))
}

// ValidateAtMost100Percent forbids a percentage above 100.
func ValidateAtMost100Percent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil || v.Type != intstr.String || Amount(v) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *v, "must not be greater than 100%")}
}

// Amount returns the number, or the number before the percent sign. It is zero for
// nil and for any other string.
func Amount(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	if v.Type == intstr.Int {
		return int(v.IntVal)
	}
	if len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0
	}
	// Digits alone can only fail to be a number by being too many.
	n, err := strconv.Atoi(v.StrVal[:len(v.StrVal)-1])
	if err != nil {
		return int(^uint(0) >> 1)
	}
	return n
}
