package scheduling

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

const (
	// systemPrefix begins the names of the system's own priority classes.
	systemPrefix = "system-"
	// highestUserPriority is the highest value of every other priority class.
	highestUserPriority int32 = 1_000_000_000
	// criticalPriority is the value of system-cluster-critical, and the base
	// of system-node-critical's.
	criticalPriority = 2 * highestUserPriority
)

var priorityClasses = resource.Type[*schedulingv1.PriorityClass]{
	Name: "priorityclasses", ShortNames: []string{"pc"},
	Versions: []resource.Version{
		resource.Alike[schedulingv1.PriorityClass, schedulingv1beta1.PriorityClass](),
		resource.Also[schedulingv1beta1.PriorityClass](schema.GroupVersion{Group: schedulingv1.GroupName, Version: "v1alpha1"}),
	},
	Default: func(pc *schedulingv1.PriorityClass) {
		resource.Fill(&pc.PreemptionPolicy, corev1.PreemptLowerPriority)
	},
	// The generation stays 1: the fields that it counts are immutable.
	PrepareCreate:  func(_ context.Context, _ *resource.Env, pc *schedulingv1.PriorityClass) { pc.Generation = 1 },
	ValidateCreate: validatePriorityClass,
	ValidateUpdate: validatePriorityClassUpdate,
	Columns: []resource.Column[*schedulingv1.PriorityClass]{
		resource.Name[*schedulingv1.PriorityClass](),
		{Name: "Value", Type: "integer", Description: classDoc["value"],
			Value: func(pc *schedulingv1.PriorityClass) any { return int64(pc.Value) }},
		{Name: "Global-Default", Type: "boolean", Description: classDoc["globalDefault"],
			Value: func(pc *schedulingv1.PriorityClass) any { return pc.GlobalDefault }},
		resource.Age[*schedulingv1.PriorityClass](),
		{Name: "PreemptionPolicy", Description: classDoc["preemptionPolicy"], Since: 32,
			Value: func(pc *schedulingv1.PriorityClass) any { return string(ptr.Deref(pc.PreemptionPolicy, "")) }},
	},
}

var classDoc = schedulingv1.PriorityClass{}.SwaggerDoc()

func validatePriorityClass(pc *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(pc.Name, systemPrefix) {
		if err := checkSystemClass(pc); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				fmt.Sprintf("priority class names with '%s' prefix are reserved for system use only. error: %v", systemPrefix, err)))
		}
	} else if pc.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserPriority)))
	}
	if pc.PreemptionPolicy == nil { // a release that has it only in alpha
		return errs
	}
	return append(errs, resource.RequiredOneOf(field.NewPath("preemptionPolicy"), *pc.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
}

// checkSystemClass accepts only the two classes that the server creates.
func checkSystemClass(pc *schedulingv1.PriorityClass) error {
	value, known := map[string]int32{
		"system-node-critical":    criticalPriority + 1000,
		"system-cluster-critical": criticalPriority,
	}[pc.Name]
	switch {
	case !known:
		return fmt.Errorf("%s is not a known system priority class", pc.Name)
	case pc.Value != value:
		return fmt.Errorf("value of %s PriorityClass must be %d", pc.Name, value)
	case pc.GlobalDefault:
		return fmt.Errorf("globalDefault of %s PriorityClass must be false", pc.Name)
	}
	return nil
}

func validatePriorityClassUpdate(pc, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if pc.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, apivalidation.ValidateImmutableField(pc.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}
