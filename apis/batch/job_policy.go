package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

// Bounds of the policies by which a job succeeds or fails.
const (
	maxRules             = 20
	maxExitCodes         = 255
	maxConditionPatterns = 20
	// maxSucceededIndexes is in bytes.
	maxSucceededIndexes = 64 * 1024
)

func validatePodFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if spec.PodFailurePolicy == nil {
		return nil
	}
	rules, path := spec.PodFailurePolicy.Rules, path.Child("rules")
	errs := atMost(len(rules), maxRules, path)
	containers := sets.New[string]()
	for _, c := range podspec.NonEphemeral(&spec.Template.Spec) {
		containers.Insert(c.Name)
	}
	for i, rule := range rules {
		errs = slices.Concat(errs, validateFailureRule(spec, &rule, containers, path.Index(i)))
	}
	return errs
}

func validateFailureRule(spec *batchv1.JobSpec, rule *batchv1.PodFailurePolicyRule, containers sets.Set[string], path *field.Path) field.ErrorList {
	errs := requireOneOf(path.Child("action"), rule.Action,
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(path.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if rule.OnExitCodes != nil {
		errs = slices.Concat(errs, validateExitCodes(rule.OnExitCodes, containers, path.Child("onExitCodes")))
	}
	conditions := path.Child("onPodConditions")
	errs = slices.Concat(errs, atMost(len(rule.OnPodConditions), maxConditionPatterns, conditions))
	for i, pattern := range rule.OnPodConditions {
		at := conditions.Index(i)
		errs = slices.Concat(errs,
			resource.Invalid(at.Child("type"), string(pattern.Type), validation.IsQualifiedName(string(pattern.Type))),
			requireOneOf(at.Child("status"), pattern.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown))
	}
	switch codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
	case codes && conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case !codes && !conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string], path *field.Path) field.ErrorList {
	errs := requireOneOf(path.Child("operator"), r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !containers.Has(*r.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName, "must be one of the container or initContainer names in the pod template"))
	}
	path = path.Child("values")
	if len(r.Values) == 0 {
		errs = append(errs, field.Invalid(path, r.Values, "at least one value is required"))
	}
	errs = slices.Concat(errs, atMost(len(r.Values), maxExitCodes, path))
	seen := sets.New[int32]()
	for i, code := range r.Values {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(path.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(path.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(path, r.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if spec.SuccessPolicy == nil {
		return nil
	}
	if !indexed(spec) {
		return field.ErrorList{field.Invalid(path, *spec.SuccessPolicy, "requires indexed completion mode")}
	}
	rules, path := spec.SuccessPolicy.Rules, path.Child("rules")
	if len(rules) == 0 {
		return field.ErrorList{field.Required(path, "at least one rules must be specified when the successPolicy is specified")}
	}
	errs := atMost(len(rules), maxRules, path)
	if spec.Completions == nil {
		return errs // reported as missing
	}
	for i, rule := range rules {
		errs = slices.Concat(errs, validateSuccessRule(&rule, *spec.Completions, path.Index(i)))
	}
	return errs
}

func validateSuccessRule(rule *batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		return field.ErrorList{field.Required(path, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	var total int32
	if rule.SucceededIndexes != nil {
		at := path.Child("succeededIndexes")
		if len(*rule.SucceededIndexes) > maxSucceededIndexes {
			errs = append(errs, field.TooLong(at, "", maxSucceededIndexes))
		}
		intervals, err := parseIndexes(*rule.SucceededIndexes, completions)
		if err != nil {
			errs = append(errs, field.Invalid(at, *rule.SucceededIndexes, "error parsing succeededIndexes: "+err.Error()))
		}
		total = countIndexes(intervals)
	}
	if rule.SucceededCount == nil {
		return errs
	}
	at, count := path.Child("succeededCount"), *rule.SucceededCount
	errs = slices.Concat(errs, workload.ValidateCounts(path, workload.Of("succeededCount", count)))
	if count > completions {
		errs = append(errs, field.Invalid(at, count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
	}
	if rule.SucceededIndexes != nil && count > total {
		errs = append(errs, field.Invalid(at, count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
	}
	return errs
}

// requireOneOf requires a value, and that it is supported.
func requireOneOf[V ~string](path *field.Path, value V, supported ...V) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", supported))}
	}
	return resource.OneOf(path, value, supported...)
}

func atMost(n, limit int, path *field.Path) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, limit)}
}
