package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/exponent"
)

// resourceRule validates a name of a resource for the place where it is used.
type resourceRule func(name corev1.ResourceName, path *field.Path) field.ErrorList

func validateContainerResources(r *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path) field.ErrorList {
	return validateRequirements(r, ValidateContainerResourceName, claims, path)
}

func overheadIsValid(s *podSpec) field.ErrorList {
	if len(s.Overhead) == 0 {
		return nil
	}
	return ValidateOverhead(s.Overhead, s.path.Child("overhead"))
}

// ValidateOverhead validates what a pod needs beyond its containers: a pod's own
// or that of its RuntimeClass.
func ValidateOverhead(overhead corev1.ResourceList, path *field.Path) field.ErrorList {
	return validateContainerResources(&corev1.ResourceRequirements{Limits: overhead}, nil, path)
}

func validateRequirements(r *corev1.ResourceRequirements, rule resourceRule, claims sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	hugePages, cpuOrMemory := false, false
	validate := func(name corev1.ResourceName, amount quantity.Quantity, path *field.Path) {
		errs = append(errs, rule(name, path)...)
		errs = append(errs, ValidateQuantity(name, amount, path)...)
		if IsHugePages(name) {
			hugePages = true
			if !isMultipleOfPage(name, amount) {
				errs = append(errs, field.Invalid(path, amount.String(), fmt.Sprintf("%s is not positive integer multiple of %s", amount.String(), name)))
			}
		}
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for _, name := range SortedNames(r.Limits) {
		validate(name, r.Limits[name], limits.Key(string(name)))
	}
	for _, name := range SortedNames(r.Requests) {
		request := r.Requests[name]
		validate(name, request, requests.Key(string(name)))
		limit, limited := r.Limits[name]
		switch {
		case !limited && !MayOvercommit(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		case !limited:
		case !MayOvercommit(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	if hugePages && !cpuOrMemory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return append(errs, validateClaimRefs(r.Claims, claims, path.Child("claims"))...)
}

// SortedNames returns the names in the list, sorted, so that the order of errors is
// stable.
func SortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ValidateQuantity requires that the amount is not negative, and an integer if the
// resource is counted.
func ValidateQuantity(name corev1.ResourceName, amount quantity.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if amount.Sign() < 0 {
		errs = append(errs, field.Invalid(path, amount.String(), apivalidation.IsNegativeErrorMsg))
	}
	if isCounted(name) && amount.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, amount.String(), "must be an integer"))
	}
	return errs
}

// ValidateContainerResourceName requires a resource that a container can request: CPU, memory,
// ephemeral storage, huge pages, or an extended resource.
func ValidateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, path)
	if strings.Contains(string(name), "/") {
		if !IsNativeResource(name) && !IsExtendedResource(name) {
			errs = append(errs, field.Invalid(path, string(name), "doesn't follow extended resource name standard"))
		}
		return errs
	}
	if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || IsHugePages(name) {
		return errs
	}
	return append(errs, field.Invalid(path, string(name), "must be a standard resource for containers"))
}

// IsNativeResource reports whether a resource is one of Kubernetes' own: names
// without a domain are in kubernetes.io.
func IsNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtendedResource reports whether the resource is an extended resource, for
// example of a device plugin: its name has a domain other than kubernetes.io, and
// is short enough for the prefix "requests." that quotas add.
func IsExtendedResource(name corev1.ResourceName) bool {
	return !IsNativeResource(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// IsHugePages reports whether the resource is huge pages of a size, such as hugepages-2Mi.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// MayOvercommit reports whether limits may exceed requests.
func MayOvercommit(name corev1.ResourceName) bool {
	return IsNativeResource(name) && !IsHugePages(name)
}

// isMultipleOfPage reports whether an amount of huge pages is a multiple of the size in the name.
func isMultipleOfPage(name corev1.ResourceName, amount quantity.Quantity) bool {
	size, err := exponent.Parse(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return amount.Value()%size.Value() == 0
}

func podResourcesAreValid(s *podSpec) field.ErrorList {
	if s.Resources == nil {
		return nil
	}
	path := s.path.Child("resources")
	if s.OS != nil && s.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if s.Resources.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, validateRequirements(s.Resources, validatePodResourceName, s.claims, path)...)
	return append(errs, containersFitIntoPod(s, path)...)
}

func validatePodResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := ValidateResourceName(name, path); errs != nil {
		return errs
	}
	if !resourcehelper.IsSupportedPodLevelResource(name) {
		return field.ErrorList{field.NotSupported(path, name, sets.List(resourcehelper.SupportedPodLevelResources()))}
	}
	return nil
}

// containersFitIntoPod compares the containers' resources with the pod's own.
func containersFitIntoPod(s *podSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	pod := &corev1.Pod{Spec: *s.PodSpec}
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range SortedNames(requests) {
		sum := requests[name]
		if own, ok := s.Resources.Requests[name]; ok && sum.Cmp(own) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), own.String(),
				"must be greater than or equal to aggregate container requests of "+sum.String()))
		}
	}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range SortedNames(limits) {
		sum := limits[name]
		if own, ok := s.Resources.Limits[name]; ok && IsHugePages(name) && sum.Cmp(own) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), own.String(),
				"must be greater than or equal to aggregate container limits of "+sum.String()))
		}
	}
	for i, c := range s.Containers {
		for _, name := range SortedNames(c.Resources.Limits) {
			limit := c.Resources.Limits[name]
			if own, ok := s.Resources.Limits[name]; ok && limit.Cmp(own) > 0 {
				errs = append(errs, field.Invalid(s.path.Child("containers").Index(i).Child("resources", "limits").Key(string(name)),
					limit.String(), "must be less than or equal to pod limits of "+own.String()))
			}
		}
	}
	return errs
}

func resourceClaimsAreValid(s *podSpec) field.ErrorList {
	if len(s.ResourceClaims) > 0 && s.meta != nil && IsMirror(s.meta.Annotations) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support resource claims")}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, claim := range s.ResourceClaims {
		path := s.path.Child("resourceClaims").Index(i)
		errs = append(errs, validateLabelName(path.Child("name"), claim.Name)...)
		errs = append(errs, resource.Unique(path.Child("name"), claim.Name, names)...)
		switch {
		case claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(path, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if name := claim.ResourceClaimName; name != nil {
			errs = append(errs, resource.Invalid(path.Child("resourceClaimName"), *name, validation.IsDNS1123Subdomain(*name))...)
		}
		if name := claim.ResourceClaimTemplateName; name != nil {
			errs = append(errs, resource.Invalid(path.Child("resourceClaimTemplateName"), *name, validation.IsDNS1123Subdomain(*name))...)
		}
	}
	return errs
}

// validateClaimRefs validates a container's references to the pod's claims: each
// claim, or each request of a claim, at most once.
func validateClaimRefs(refs []corev1.ResourceClaim, claims sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	whole, parts := sets.New[string](), sets.New[string]() // names of claims, and "name/request"
	for i, ref := range refs {
		path := path.Index(i)
		if ref.Name == "" {
			errs = append(errs, field.Required(path, ""))
			continue
		}
		key := ref.Name
		if ref.Request != "" {
			errs = append(errs, resource.Invalid(path.Child("request"), ref.Request, validation.IsDNS1123Label(ref.Request))...)
			key += "/" + ref.Request
		}
		overlaps := whole.Has(ref.Name) || parts.Has(key)
		if ref.Request == "" {
			for part := range parts {
				overlaps = overlaps || strings.HasPrefix(part, ref.Name+"/")
			}
			whole.Insert(ref.Name)
		} else {
			parts.Insert(key)
		}
		if overlaps {
			errs = append(errs, field.Duplicate(path, key))
		}
		if !claims.Has(ref.Name) {
			missing := field.NotFound(path, ref.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(sets.List(claims), ", ")
			if len(claims) == 0 {
				missing.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			}
			errs = append(errs, missing)
		}
	}
	return errs
}
