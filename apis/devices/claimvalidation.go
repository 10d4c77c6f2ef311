package devices

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/cel"

	"svc.dev/svc/apis/resource"
)

func validateClaim(path *field.Path, spec *resourcev1.ResourceClaimSpec) field.ErrorList {
	path = path.Child("devices")
	claim, requests := &spec.Devices, path.Child("requests")
	names := requestNames(claim)
	return slices.Concat(
		each(requests, claim.Requests, resourcev1.DeviceRequestsMaxSize, validateRequest),
		unique(requests, claim.Requests, func(r *resourcev1.DeviceRequest) string { return r.Name }),
		each(path.Child("constraints"), claim.Constraints, resourcev1.DeviceConstraintsMaxSize, func(at *field.Path, c *resourcev1.DeviceConstraint) field.ErrorList {
			return validateConstraint(at, c, names)
		}),
		each(path.Child("config"), claim.Config, resourcev1.DeviceConfigMaxSize, func(at *field.Path, c *resourcev1.DeviceClaimConfiguration) field.ErrorList {
			return append(validateRequestNames(at.Child("requests"), c.Requests, names), validateConfiguration(at, &c.DeviceConfiguration, false)...)
		}))
}

func validateRequest(path *field.Path, r *resourcev1.DeviceRequest) field.ErrorList {
	errs := validateLabel(path.Child("name"), r.Name)
	switch {
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly != nil:
		e, at := r.Exactly, path.Child("exactly")
		return append(errs, validateWanted(at, wanted{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations})...)
	case len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, "exactly one of `exactly` or `firstAvailable` is required"))
	}
	list := path.Child("firstAvailable")
	return slices.Concat(errs,
		each(list, r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, func(at *field.Path, s *resourcev1.DeviceSubRequest) field.ErrorList {
			return append(validateLabel(at.Child("name"), s.Name), validateWanted(at, wanted{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations})...)
		}),
		unique(list, r.FirstAvailable, func(s *resourcev1.DeviceSubRequest) string { return s.Name }))
}

// wanted are the fields that requests and their alternatives share.
type wanted struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func validateWanted(path *field.Path, w wanted) field.ErrorList {
	var errs field.ErrorList
	if w.class == "" {
		errs = append(errs, field.Required(path.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, resource.Invalid(path.Child("deviceClassName"), w.class, apivalidation.NameIsDNSSubdomain(w.class, false))...)
	}
	errs = append(errs, validateSelectors(path.Child("selectors"), w.selectors, false)...)
	count := path.Child("count")
	switch w.mode {
	case resourcev1.DeviceAllocationModeAll:
		if w.count != 0 {
			errs = append(errs, field.Invalid(count, w.count, "must not be specified when allocationMode is 'All'"))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if w.count <= 0 {
			errs = append(errs, field.Invalid(count, w.count, "must be greater than zero"))
		}
	default:
		errs = append(errs, resource.OneOf(path.Child("allocationMode"), w.mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	}
	return append(errs, each(path.Child("tolerations"), w.tolerations, resourcev1.DeviceTolerationsMaxLength, validateToleration)...)
}

// validateSelectors validates selectors, and compiles their expressions unless they are
// stored already.
func validateSelectors(path *field.Path, selectors []resourcev1.DeviceSelector, stored bool) field.ErrorList {
	return each(path, selectors, resourcev1.DeviceSelectorsMaxSize, func(at *field.Path, s *resourcev1.DeviceSelector) field.ErrorList {
		if s.CEL == nil {
			return field.ErrorList{field.Required(at.Child("cel"), "")}
		}
		if stored {
			return nil
		}
		return validateExpression(at.Child("cel", "expression"), s.CEL.Expression)
	})
}

func validateExpression(path *field.Path, expression string) field.ErrorList {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	result := compiler.CompileCELExpression(expression, cel.Options{})
	switch {
	case result.Error != nil:
		return field.ErrorList{field.Invalid(path, expression, result.Error.Detail)}
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	}
	return nil
}

// validateToleration allows an empty key with every operator.
func validateToleration(path *field.Path, t *resourcev1.DeviceToleration) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	errs = append(errs, resource.RequiredOneOf(path.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
	switch {
	case t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "":
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`"))
	case t.Operator == resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, resource.Invalid(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	}
	if t.Effect != "" {
		errs = append(errs, resource.OneOf(path.Child("effect"), t.Effect, taintEffects...)...)
	}
	return errs
}

// validateConstraint validates the first attribute alone, as Kubernetes does: a
// constraint with both is accepted.
func validateConstraint(path *field.Path, c *resourcev1.DeviceConstraint, names []string) field.ErrorList {
	errs := validateRequestNames(path.Child("requests"), c.Requests, names)
	switch {
	case c.MatchAttribute != nil:
		return append(errs, validateFullyQualified(path.Child("matchAttribute"), string(*c.MatchAttribute))...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullyQualified(path.Child("distinctAttribute"), string(*c.DistinctAttribute))...)
	}
	return append(errs, field.Required(path, "exactly one of `matchAttribute` or `distinctAttribute` is required"))
}

// validateRequestNames requires names of the claim's requests, each once.
func validateRequestNames(path *field.Path, requests, names []string) field.ErrorList {
	return append(
		each(path, requests, resourcev1.DeviceRequestsMaxSize, func(at *field.Path, r *string) field.ErrorList { return validateRequestName(at, *r, names) }),
		unique(path, requests, func(r *string) string { return *r })...)
}

// validateRequestName requires the name of one of the claim's requests, or of one of its
// alternatives after the name of the request and a slash.
func validateRequestName(path *field.Path, name string, names []string) field.ErrorList {
	var errs field.ErrorList
	if parts := strings.Split(name, "/"); len(parts) <= 2 {
		for _, part := range parts {
			errs = append(errs, validateLabel(path, part)...)
		}
	}
	if !slices.Contains(names, name) {
		errs = append(errs, field.Invalid(path, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
	}
	return errs
}

// validateConfiguration validates a configuration. Stored parameters may be of any size: the
// limit is newer than the first version of the type.
func validateConfiguration(path *field.Path, c *resourcev1.DeviceConfiguration, stored bool) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path.Child("opaque"), "")}
	}
	path = path.Child("opaque")
	limit := resourcev1.OpaqueParametersMaxLength
	if stored {
		limit = math.MaxInt
	}
	errs := validateDriver(path.Child("driver"), c.Opaque.Driver)
	return append(errs, validateParameters(path.Child("parameters"), c.Opaque.Parameters.Raw, limit)...)
}

// validateParameters requires a JSON object.
func validateParameters(path *field.Path, raw []byte, limit int) field.ErrorList {
	var parameters any
	switch {
	case len(raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(raw) > limit:
		return field.ErrorList{field.TooLong(path, "", limit)}
	}
	if err := json.Unmarshal(raw, &parameters); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	switch parameters.(type) {
	case nil:
		return field.ErrorList{field.Required(path, "")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
}

func validateDriver(path *field.Path, driver string) field.ErrorList {
	if driver == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(driver) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, resource.Invalid(path, driver, validation.IsDNS1123Subdomain(strings.ToLower(driver)))...)
}

// validatePool requires a name with parts between slashes.
func validatePool(path *field.Path, pool string) field.ErrorList {
	if pool == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(pool) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(pool, "/") {
		errs = append(errs, resource.Invalid(path, part, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// validateQualified validates a name that may have a domain.
func validateQualified(path *field.Path, name string) field.ErrorList {
	domain, id, found := strings.Cut(name, "/")
	switch {
	case !found:
		return validateIdentifier(path, name)
	case strings.Contains(id, "/"):
		return field.ErrorList{field.Invalid(path, name, "a qualified name must have at most one slash")}
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriver(path, domain)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(path, id)...)
}

func validateIdentifier(path *field.Path, id string) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, resource.Invalid(path, id, validation.IsCIdentifier(id))...)
}

func validateFullyQualified(path *field.Path, name string) field.ErrorList {
	errs := validateQualified(path, name)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}
