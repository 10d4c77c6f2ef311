package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var resourceQuotas = resource.Type[*corev1.ResourceQuota]{
	Name: "resourcequotas", ShortNames: []string{"quota"}, Namespaced: true, ReturnDeleted: true,
	Default:        defaultResourceQuota,
	Validate:       validateResourceQuota,
	ValidateUpdate: validateResourceQuotaUpdate,
	Warn:           warnResourceQuota,
	Status:         true,
	ValidateStatus: func(q, _ *corev1.ResourceQuota) field.ErrorList { return validateQuotaStatus(q) },
	Columns: []resource.Column[*corev1.ResourceQuota]{
		resource.Name[*corev1.ResourceQuota](),
		resource.Until(32, resource.Age[*corev1.ResourceQuota]()),
		{Name: "Request", Description: "Request represents a minimum amount of cpu/memory that a container may consume.",
			Value: func(q *corev1.ResourceQuota) any { return quotaUse(q, false) }},
		{Name: "Limit", Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
			Value: func(q *corev1.ResourceQuota) any { return quotaUse(q, true) }},
		resource.Since(33, resource.Age[*corev1.ResourceQuota]()),
	},
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
		podspec.RoundUpToMilli(list)
	}
}

func validateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaList(q.Spec.Hard, specPath.Child("hard"))
	errs = append(errs, validateQuotaScopes(&q.Spec)...)
	errs = append(errs, validateScopeSelector(&q.Spec)...)
	return append(errs, validateQuotaStatus(q)...)
}

func validateQuotaStatus(q *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	return append(validateQuotaList(q.Status.Hard, path.Child("hard")), validateQuotaList(q.Status.Used, path.Child("used"))...)
}

func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range podspec.SortedNames(list) {
		path := path.Key(string(name))
		errs = append(errs, podspec.ValidateResourceName(name, path)...)
		if !strings.Contains(string(name), "/") && !podspec.IsQuotaResource(name) {
			errs = append(errs, field.Invalid(path, string(name), "must be a standard resource for quota"))
		}
		errs = append(errs, podspec.ValidateQuantity(name, list[name], path)...)
	}
	return errs
}

// scopedResources are the resources that a quota can limit within a scope.
var scopedResources = func() map[corev1.ResourceQuotaScope][]corev1.ResourceName {
	pods := []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}
	return map[corev1.ResourceQuotaScope][]corev1.ResourceName{
		corev1.ResourceQuotaScopeTerminating:               pods,
		corev1.ResourceQuotaScopeNotTerminating:            pods,
		corev1.ResourceQuotaScopeNotBestEffort:             pods,
		corev1.ResourceQuotaScopePriorityClass:             pods,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity: pods,
		corev1.ResourceQuotaScopeBestEffort:                {corev1.ResourcePods},
		corev1.ResourceQuotaScopeVolumeAttributesClass:     {corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage},
	}
}()

func validateQuotaScopes(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("scopes")
	for _, scope := range spec.Scopes {
		if _, known := scopedResources[scope]; !known {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope"))
		}
		for range foreignResources(spec, scope) {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, scopesAgree(spec, spec.Scopes, path)...)
}

// foreignResources returns the quota's standard resources that cannot be limited
// within a known scope.
func foreignResources(spec *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope) []corev1.ResourceName {
	has, known := scopedResources[scope]
	if !known {
		return nil
	}
	return slices.DeleteFunc(podspec.SortedNames(spec.Hard), func(name corev1.ResourceName) bool {
		return !podspec.IsQuotaResource(name) || slices.Contains(has, name)
	})
}

func scopesAgree(spec *corev1.ResourceQuotaSpec, scopes []corev1.ResourceQuotaScope, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, opposites := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, opposites[0]) && slices.Contains(scopes, opposites[1]) {
			errs = append(errs, field.Invalid(path, spec.Scopes, "conflicting scopes"))
		}
	}
	return errs
}

func validateScopeSelector(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	if spec.ScopeSelector == nil {
		return nil
	}
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	path := specPath.Child("scopeSelector", "matchExpressions")
	for _, r := range spec.ScopeSelector.MatchExpressions {
		if _, known := scopedResources[r.ScopeName]; !known {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for range foreignResources(spec, r.ScopeName) {
			errs = append(errs, field.Invalid(path, spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateScopeRequirement(r, path)...)
		scopes = append(scopes, r.ScopeName)
	}
	return append(errs, scopesAgree(spec, scopes, path)...)
}

// scopesWithValues are the scopes for which a selector can have values.
var scopesWithValues = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass}

func validateScopeRequirement(r corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, known := scopedResources[r.ScopeName]; known && !slices.Contains(scopesWithValues, r.ScopeName) && r.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
			"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}

func validateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	if sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg)}
}

// warnResourceQuota warns of a new quota whose requests exceed its limits.
func warnResourceQuota(q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requests := "requests." + name
		request, requested := q.Spec.Hard[requests]
		if !requested && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requests = name
			request, requested = q.Spec.Hard[requests]
		}
		limits := "limits." + name
		if limit, limited := q.Spec.Hard[limits]; requested && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, request.String(), limits, limit.String()))
		}
	}
	return warnings
}

// quotaUse returns used/hard of the resources named limits.*, for the Limit cell,
// or of all others, for the Request cell.
func quotaUse(q *corev1.ResourceQuota, limits bool) string {
	var cells []string
	for _, name := range podspec.SortedNames(q.Status.Hard) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		cells = append(cells, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(cells, ", ")
}
