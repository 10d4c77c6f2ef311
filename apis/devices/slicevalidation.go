package devices

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

func validateSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	return validateSliceWith(s, true)
}

// ValidateSliceWithoutFractions validates a ResourceSlice as a release without the feature gate
// DRAFractionalCapacityRange: the policies of capacities are in integers, to which fractions are
// rounded up.
func ValidateSliceWithoutFractions(s *resourcev1.ResourceSlice) field.ErrorList {
	return validateSliceWith(s, false)
}

func validateSliceWith(s *resourcev1.ResourceSlice, fractions bool) field.ErrorList {
	spec, path := &s.Spec, field.NewPath("spec")
	errs := slices.Concat(
		validateDriver(path.Child("driver"), spec.Driver),
		validateSlicePool(path.Child("pool"), &spec.Pool),
		validateSliceNodes(path, spec))
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	limit := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(spec.Devices, isAdvanced) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	devices, counters := path.Child("devices"), path.Child("sharedCounters")
	perDevice := ptr.Deref(spec.PerDeviceNodeSelection, false)
	return slices.Concat(errs,
		each(devices, spec.Devices, limit, func(at *field.Path, d *resourcev1.Device) field.ErrorList {
			return validateDevice(at, d, perDevice, fractions)
		}),
		unique(devices, spec.Devices, func(d *resourcev1.Device) string { return d.Name }),
		each(counters, spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, func(at *field.Path, set *resourcev1.CounterSet) field.ErrorList {
			return append(requiredLabel(at.Child("name"), set.Name), validateCounters(at.Child("counters"), set.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet)...)
		}),
		unique(counters, spec.SharedCounters, func(set *resourcev1.CounterSet) string { return set.Name }))
}

// isAdvanced reports whether a device has what slices of fewer devices may have only.
func isAdvanced(d resourcev1.Device) bool {
	if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
		return true
	}
	for _, a := range d.Attributes {
		if a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil {
			return true
		}
	}
	return false
}

func validateSlicePool(path *field.Path, pool *resourcev1.ResourcePool) field.ErrorList {
	errs := validatePool(path.Child("name"), pool.Name)
	if pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("resourceSliceCount"), pool.ResourceSliceCount, "must be greater than zero"))
	}
	if pool.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("generation"), pool.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// nodes are the fields by which a slice, or a device, says where it can be used: of which
// those that are set, as errors name them.
type nodes struct {
	path *field.Path
	set  []string
	errs field.ErrorList
}

// name requires the name of a node, if there is a value.
func (n *nodes) name(value *string, whenEmpty string) {
	path := n.path.Child("nodeName")
	switch {
	case value == nil:
	case *value == "":
		n.errs = append(n.errs, field.Invalid(path, "", whenEmpty))
	default:
		n.set = append(n.set, "`nodeName`")
		n.errs = append(n.errs, resource.Invalid(path, *value, apivalidation.NameIsDNSSubdomain(*value, false))...)
	}
}

func (n *nodes) selector(value *corev1.NodeSelector) {
	if value != nil {
		n.set = append(n.set, "`nodeSelector`")
		n.errs = append(n.errs, podspec.ValidateNodeSelector(value, n.path.Child("nodeSelector"))...)
	}
}

// flag requires true, if there is a value.
func (n *nodes) flag(name string, value *bool) {
	switch {
	case value == nil:
	case *value:
		n.set = append(n.set, "`"+name+"`")
	default:
		n.errs = append(n.errs, field.Invalid(n.path.Child(name), false, "must be either unset or set to true"))
	}
}

// exactlyOne returns the errors of the fields, with one if not exactly one of them is set.
func (n *nodes) exactlyOne(rule, several string) field.ErrorList {
	switch len(n.set) {
	case 0:
		return append(n.errs, field.Required(n.path, rule))
	case 1:
		return n.errs
	}
	return append(n.errs, field.Invalid(n.path, "{"+strings.Join(n.set, ", ")+"}", rule+several))
}

func validateSliceNodes(path *field.Path, spec *resourcev1.ResourceSliceSpec) field.ErrorList {
	n := nodes{path: path}
	n.name(spec.NodeName, "must be either unset or set to a non-empty string")
	n.selector(spec.NodeSelector)
	if s := spec.NodeSelector; s != nil && len(s.NodeSelectorTerms) != 1 {
		n.errs = append(n.errs, field.Invalid(path.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelectorTerms, "must have exactly one node selector term"))
	}
	n.flag("allNodes", spec.AllNodes)
	n.flag("perDeviceNodeSelection", spec.PerDeviceNodeSelection)
	return n.exactlyOne("exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required", ", but multiple fields are set")
}

func validateDeviceNodes(path *field.Path, d *resourcev1.Device, perDevice bool) field.ErrorList {
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	n := nodes{path: path}
	n.name(d.NodeName, "must not be empty")
	n.selector(d.NodeSelector)
	n.flag("allNodes", d.AllNodes)
	return n.exactlyOne("exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec", "")
}

func validateDevice(path *field.Path, d *resourcev1.Device, perDevice, fractions bool) field.ErrorList {
	errs := validateLabel(path.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	values := 0
	for _, a := range d.Attributes {
		values += max(1, len(a.BoolValues)+len(a.IntValues)+len(a.StringValues)+len(a.VersionValues))
	}
	if values > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		errs = append(errs, field.Invalid(path, values, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
	}
	attributes, capacities, counters := path.Child("attributes"), path.Child("capacity"), path.Child("consumesCounters")
	for name, a := range d.Attributes {
		errs = append(errs, validateQualified(attributes, string(name))...)
		errs = append(errs, validateAttribute(attributes.Key(string(name)), &a)...)
	}
	for name, c := range d.Capacity {
		errs = append(errs, validateQualified(capacities, string(name))...)
		errs = append(errs, validateCapacity(capacities.Key(string(name)), &c, ptr.Deref(d.AllowMultipleAllocations, false), fractions)...)
	}
	return slices.Concat(errs,
		each(path.Child("taints"), d.Taints, resourcev1.DeviceTaintsMaxLength, validateTaint),
		each(counters, d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, func(at *field.Path, c *resourcev1.DeviceCounterConsumption) field.ErrorList {
			return append(requiredLabel(at.Child("counterSet"), c.CounterSet),
				validateCounters(at.Child("counters"), c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)...)
		}),
		unique(counters, d.ConsumesCounters, func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet }),
		validateDeviceNodes(path, d, perDevice),
		validateBinding(path, d.BindingConditions, d.BindingFailureConditions))
}

// semver matches a version as semver.org's specification 2.0.0 has it.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute requires exactly one value.
func validateAttribute(path *field.Path, a *resourcev1.DeviceAttribute) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for _, single := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if single {
			set++
		}
	}
	if a.StringValue != nil {
		errs = append(errs, validateText(path.Child("string"), a.StringValue)...)
	}
	if a.VersionValue != nil {
		errs = append(errs, validateVersion(path.Child("version"), a.VersionValue)...)
	}
	for _, list := range []struct {
		name    string
		present bool
		n       int
	}{
		{"bools", a.BoolValues != nil, len(a.BoolValues)}, {"ints", a.IntValues != nil, len(a.IntValues)},
		{"strings", a.StringValues != nil, len(a.StringValues)}, {"versions", a.VersionValues != nil, len(a.VersionValues)},
	} {
		if list.present {
			set++
			if list.n == 0 {
				errs = append(errs, field.Invalid(path.Child(list.name), []string{}, "must not be empty if specified"))
			}
		}
	}
	errs = append(errs, each(path.Child("strings"), a.StringValues, len(a.StringValues), validateText)...)
	errs = append(errs, each(path.Child("versions"), a.VersionValues, len(a.VersionValues), validateVersion)...)
	switch set {
	case 0:
		errs = append(errs, field.Invalid(path, "", "exactly one value must be specified"))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, a, "exactly one value must be specified"))
	}
	return errs
}

func validateText(path *field.Path, text *string) field.ErrorList {
	if len(*text) > resourcev1.DeviceAttributeMaxValueLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.DeviceAttributeMaxValueLength)}
	}
	return nil
}

func validateVersion(path *field.Path, version *string) field.ErrorList {
	var errs field.ErrorList
	if !semver.MatchString(*version) {
		errs = append(errs, field.Invalid(path, *version, "must be a string compatible with semver.org spec 2.0.0"))
	}
	return append(errs, validateText(path, version)...)
}

// taintEffects are the effects of taints and tolerations, in the order of messages.
var taintEffects = []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}

func validateTaint(path *field.Path, t *resourcev1.DeviceTaint) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, resource.Invalid(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	}
	return append(errs, resource.RequiredOneOf(path.Child("effect"), t.Effect, taintEffects...)...)
}

// validateCounters requires counters with names.
func validateCounters(path *field.Path, counters map[string]resourcev1.Counter, limit int) field.ErrorList {
	if len(counters) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := tooMany(path, len(counters), limit)
	if len(errs) > 0 {
		return errs
	}
	for name := range counters {
		errs = append(errs, validateLabel(path, name)...)
	}
	return errs
}

// validateBinding requires both kinds of conditions or none, each once.
func validateBinding(path *field.Path, conditions, failures []string) field.ErrorList {
	label := func(at *field.Path, name *string) field.ErrorList {
		return metav1validation.ValidateLabelName(*name, at)
	}
	itself := func(name *string) string { return *name }
	successPath, failurePath := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	errs := slices.Concat(
		each(successPath, conditions, resourcev1.BindingConditionsMaxSize, label),
		each(failurePath, failures, resourcev1.BindingFailureConditionsMaxSize, label),
		unique(successPath, conditions, itself),
		unique(failurePath, failures, itself))
	for i, name := range failures {
		if slices.Contains(conditions, name) {
			errs = append(errs, field.Invalid(failurePath.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		errs = append(errs, field.Invalid(successPath, conditions, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failures) == 0 && len(conditions) > 0 {
		errs = append(errs, field.Invalid(failurePath, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
