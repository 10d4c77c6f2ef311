package devices

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxValidValues is the number of discrete values that a policy may have
// (CapacityRequestPolicyDiscreteMaxOptions in Kubernetes).
const maxValidValues = 10

// validateCapacity allows a policy for requests of a part of the capacity of a device
// that is allocated several times. With fractions, numbers that differ in a fraction differ.
func validateCapacity(path *field.Path, c *resourcev1.DeviceCapacity, shared, fractions bool) field.ErrorList {
	p, path := c.RequestPolicy, path.Child("requestPolicy")
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(path, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validateValidValues(path.Child("validValues"), p, &c.Value, fractions)
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validateValidRange(path.Child("validRange"), p.ValidRange, p.Default, &c.Value, fractions)
	}
	return nil
}

// validateValidValues requires ascending values up to the capacity, of which the default
// is one.
func validateValidValues(path *field.Path, p *resourcev1.CapacityRequestPolicy, capacity *apiresource.Quantity, fractions bool) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(p.ValidValues); i++ {
		if p.ValidValues[i-1].Cmp(p.ValidValues[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), p.ValidValues[i].String(), "values must be sorted in ascending order"))
		}
	}
	hasDefault := false
	errs = append(errs, each(path, p.ValidValues, maxValidValues, func(at *field.Path, value *apiresource.Quantity) field.ErrorList {
		hasDefault = hasDefault || value.Cmp(*p.Default) == 0
		if value.Cmp(*capacity) > 0 {
			return field.ErrorList{field.Invalid(at, value.String(), "option is larger than capacity value: "+capacity.String())}
		}
		return nil
	})...)
	errs = append(errs, unique(path, p.ValidValues, func(value *apiresource.Quantity) string {
		if !fractions {
			return strconv.FormatInt(value.Value(), 10)
		}
		exact := value.DeepCopy()
		return exact.AsDec().String()
	})...)
	if !hasDefault {
		errs = append(errs, field.Invalid(path, p.Default.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// validateValidRange requires a range within the capacity that has the default in it, and
// its maximum and the default some steps above its minimum.
func validateValidRange(path *field.Path, r *resourcev1.CapacityRequestPolicyRange, byDefault, capacity *apiresource.Quantity, fractions bool) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	atMost := func(name string, value, limit *apiresource.Quantity, detail string) {
		if value.Cmp(*limit) > 0 {
			errs = append(errs, field.Invalid(path.Child(name), value.String(), detail+": "+limit.String()))
		}
	}
	atMost("min", r.Min, capacity, "min is larger than capacity value")
	if byDefault.Cmp(*r.Min) < 0 {
		errs = append(errs, field.Invalid(path.Child("min"), byDefault.String(), "default is less than min: "+r.Min.String()))
	}
	if r.Max != nil {
		atMost("max", r.Min, r.Max, "min is larger than max")
		atMost("max", r.Max, capacity, "max is larger than capacity value")
		atMost("max", byDefault, r.Max, "default is more than max")
	}
	return append(errs, validateStep(path, r, byDefault, capacity, fractions)...)
}

// validateStep requires the maximum of a range and the default to be some steps above its minimum.
// With fractions, all numbers are counted in thousandths if one of them is a fraction. Otherwise they
// are counted in integers, and fractions are rounded up.
func validateStep(path *field.Path, r *resourcev1.CapacityRequestPolicyRange, byDefault, capacity *apiresource.Quantity, fractions bool) field.ErrorList {
	numbers := map[string]*apiresource.Quantity{"default": byDefault, "min": r.Min, "max": r.Max, "step": r.Step}
	maps.DeleteFunc(numbers, func(_ string, q *apiresource.Quantity) bool { return q == nil })
	count, milli := (*apiresource.Quantity).Value, false
	for _, q := range numbers {
		if _, whole := q.AsScale(0); fractions && !whole {
			count, milli = (*apiresource.Quantity).MilliValue, true
		}
	}
	if milli {
		if errs := countable(path, numbers, thousandths); len(errs) > 0 {
			return errs
		}
	}
	step := path.Child("step")
	switch {
	case r.Step == nil:
		return nil
	case r.Step.Sign() <= 0:
		return field.ErrorList{field.Invalid(step, r.Step.String(), "must be greater than zero")}
	}
	var errs field.ErrorList
	next := r.Min.DeepCopy()
	next.Add(*r.Step)
	if next.Cmp(*capacity) > 0 {
		errs = append(errs, field.Invalid(step, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", next.String(), capacity.String())))
	}
	if !milli {
		if out := countable(path, numbers, integers); len(out) > 0 {
			return append(errs, out...)
		}
	}
	for _, value := range []*apiresource.Quantity{byDefault, r.Max} {
		if value != nil && (count(value)-count(r.Min))%count(r.Step) != 0 {
			errs = append(errs, field.Invalid(step, value.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

// countable returns an error for each of the numbers that cannot be counted: why says so.
func countable(path *field.Path, numbers map[string]*apiresource.Quantity, why func(*apiresource.Quantity) string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if problem := why(numbers[name]); problem != "" {
			errs = append(errs, field.Invalid(path.Child(name), numbers[name].String(), problem))
		}
	}
	return errs
}

// thousandths returns why a number cannot be counted in thousandths, if it cannot.
func thousandths(q *apiresource.Quantity) string {
	if q.Cmp(*apiresource.NewMilliQuantity(q.MilliValue(), q.Format)) != 0 {
		return "value cannot be represented as a milli value"
	}
	return ""
}

// integers returns why a number cannot be counted in integers, if it cannot. Quantities with decimal
// suffixes can be larger than an int64, and the Value of some of them is 0: that of 100E, for example.
func integers(q *apiresource.Quantity) string {
	switch {
	case q.Sign() < 0:
		return apivalidation.IsNegativeErrorMsg
	case q.CmpInt64(math.MaxInt64) > 0:
		return "must not be larger than 9223372036854775807"
	}
	return ""
}
