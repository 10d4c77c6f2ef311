package devices

import (
	"fmt"
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
	errs := tooMany(requests, len(claim.Requests), resourcev1.DeviceRequestsMaxSize)
	var names []string
	for i := range claim.Requests {
		r, at := &claim.Requests[i], requests.Index(i)
		errs = append(errs, validateRequestName(at.Child("name"), r.Name, names)...)
		names = append(names, r.Name)
		errs = append(errs, validateRequest(at, r)...)
		for _, s := range r.FirstAvailable {
			names = append(names, r.Name+"/"+s.Name)
		}
	}
	constraints := path.Child("constraints")
	errs = append(errs, tooMany(constraints, len(claim.Constraints), resourcev1.DeviceConstraintsMaxSize)...)
	for i := range claim.Constraints {
		errs = append(errs, validateConstraint(constraints.Index(i), &claim.Constraints[i], names)...)
	}
	config := path.Child("config")
	errs = append(errs, tooMany(config, len(claim.Config), resourcev1.DeviceConfigMaxSize)...)
	for i := range claim.Config {
		errs = append(errs, validateRequestNames(config.Index(i).Child("requests"), claim.Config[i].Requests, names)...)
		errs = append(errs, validateConfiguration(config.Index(i), &claim.Config[i].DeviceConfiguration)...)
	}
	return errs
}

func tooMany(path *field.Path, n, limit int) field.ErrorList {
	if n > limit {
		return field.ErrorList{field.TooMany(path, n, limit)}
	}
	return nil
}

func validateRequestName(path *field.Path, name string, others []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := resource.Invalid(path, name, validation.IsDNS1123Label(name))
	if slices.Contains(others, name) {
		errs = append(errs, field.Duplicate(path, name))
	}
	return errs
}

func validateRequest(path *field.Path, r *resourcev1.DeviceRequest) field.ErrorList {
	switch {
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return field.ErrorList{field.Invalid(path, nil, "exactly one of `exactly` and `firstAvailable` is required, but multiple fields are set")}
	case r.Exactly != nil:
		e, at := r.Exactly, path.Child("exactly")
		return validateWanted(at, wanted{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, e.Capacity})
	case len(r.FirstAvailable) == 0:
		return field.ErrorList{field.Required(path, "exactly one of `exactly` and `firstAvailable` is required")}
	}
	list := path.Child("firstAvailable")
	errs := tooMany(list, len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize)
	var names []string
	for i, s := range r.FirstAvailable {
		errs = append(errs, validateRequestName(list.Index(i).Child("name"), s.Name, names)...)
		names = append(names, s.Name)
		errs = append(errs, validateWanted(list.Index(i), wanted{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations, s.Capacity})...)
	}
	return errs
}

// wanted are the fields that requests and their alternatives share.
type wanted struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

func validateWanted(path *field.Path, w wanted) field.ErrorList {
	var errs field.ErrorList
	if w.class == "" {
		errs = append(errs, field.Required(path.Child("deviceClassName"), ""))
	} else {
		errs = append(errs, resource.Invalid(path.Child("deviceClassName"), w.class, apivalidation.NameIsDNSSubdomain(w.class, false))...)
	}
	errs = append(errs, validateSelectors(path.Child("selectors"), w.selectors)...)
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
	errs = append(errs, validateTolerations(path.Child("tolerations"), w.tolerations)...)
	if w.capacity != nil {
		for name := range w.capacity.Requests {
			errs = append(errs, validateQualified(path.Child("capacity", "requests"), string(name))...)
		}
	}
	return errs
}

func validateSelectors(path *field.Path, selectors []resourcev1.DeviceSelector) field.ErrorList {
	errs := tooMany(path, len(selectors), resourcev1.DeviceSelectorsMaxSize)
	for i, s := range selectors {
		at := path.Index(i).Child("cel")
		if s.CEL == nil {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, validateExpression(at.Child("expression"), s.CEL.Expression)...)
	}
	return errs
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

func validateTolerations(path *field.Path, tolerations []resourcev1.DeviceToleration) field.ErrorList {
	errs := tooMany(path, len(tolerations), resourcev1.DeviceTolerationsMaxLength)
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		errs = append(errs, resource.RequiredOneOf(at.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
		switch {
		case t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "":
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
		case t.Operator == resourcev1.DeviceTolerationOpEqual:
			errs = append(errs, resource.Invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
			if t.Key == "" {
				errs = append(errs, field.Required(at.Child("key"), "must be set for operator `Equal`"))
			}
		}
		if t.Effect != "" {
			errs = append(errs, resource.OneOf(at.Child("effect"), t.Effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule)...)
		}
		if t.TolerationSeconds != nil && t.Effect != "" && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be 'NoExecute' when `tolerationSeconds` is set"))
		}
	}
	return errs
}

func validateConstraint(path *field.Path, c *resourcev1.DeviceConstraint, names []string) field.ErrorList {
	errs := validateRequestNames(path.Child("requests"), c.Requests, names)
	switch {
	case c.MatchAttribute != nil && c.DistinctAttribute != nil:
		return append(errs, field.Invalid(path, nil, "exactly one of `matchAttribute` and `distinctAttribute` is required, but multiple fields are set"))
	case c.MatchAttribute != nil:
		return append(errs, validateFullyQualified(path.Child("matchAttribute"), string(*c.MatchAttribute))...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullyQualified(path.Child("distinctAttribute"), string(*c.DistinctAttribute))...)
	}
	return append(errs, field.Required(path.Child("matchAttribute"), ""))
}

// validateRequestNames requires names of the claim's requests, each once.
func validateRequestNames(path *field.Path, requests, names []string) field.ErrorList {
	errs := tooMany(path, len(requests), resourcev1.DeviceRequestsMaxSize)
	for i, r := range requests {
		if !slices.Contains(names, r) {
			errs = append(errs, field.Invalid(path.Index(i), r, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
		}
		if slices.Contains(requests[:i], r) {
			errs = append(errs, field.Duplicate(path.Index(i), r))
		}
	}
	return errs
}

func validateConfiguration(path *field.Path, c *resourcev1.DeviceConfiguration) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path.Child("opaque"), "")}
	}
	path = path.Child("opaque")
	errs := validateDriver(path.Child("driver"), c.Opaque.Driver)
	return append(errs, validateParameters(path.Child("parameters"), c.Opaque.Parameters.Raw, resourcev1.OpaqueParametersMaxLength)...)
}

// validateParameters requires a JSON object.
func validateParameters(path *field.Path, raw []byte, limit int) field.ErrorList {
	switch {
	case len(raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(raw) > limit:
		return field.ErrorList{field.TooLong(path, "", limit)}
	case !isObject(raw):
		return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
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
		errs = append(errs, resource.Invalid(path, pool, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// validateQualified validates a name that may have a domain.
func validateQualified(path *field.Path, name string) field.ErrorList {
	domain, id, found := strings.Cut(name, "/")
	if !found {
		domain, id = "", name
	}
	var errs field.ErrorList
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "name required")}
	case strings.Contains(id, "/"):
		return field.ErrorList{field.Invalid(path, name, "a qualified name must have at most one slash")}
	case found && domain == "":
		errs = append(errs, field.Required(path, "the domain must not be empty"))
	case found:
		if len(domain) > resourcev1.DeviceMaxDomainLength {
			errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxDomainLength))
		}
		errs = append(errs, resource.Invalid(path, domain, validation.IsDNS1123Subdomain(domain))...)
	}
	if id == "" {
		return append(errs, field.Required(path, "the name must not be empty"))
	}
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, resource.Invalid(path, id, validation.IsCIdentifier(id))...)
}

func validateFullyQualified(path *field.Path, name string) field.ErrorList {
	errs := validateQualified(path, name)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf("must include a domain, such as example.com/%s", name)))
	}
	return errs
}
