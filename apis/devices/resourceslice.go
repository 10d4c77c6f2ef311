package devices

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var resourceSlices = resource.Type[*resourcev1.ResourceSlice]{
	Name: "resourceslices",
	Versions: []resource.Version{
		resource.Alike[resourcev1.ResourceSlice, resourcev1beta2.ResourceSlice](),
		resource.Convert(sliceFromV1beta1, sliceToV1beta1),
	},
	PrepareCreate: func(_ context.Context, env *resource.Env, s *resourcev1.ResourceSlice) { stampTaints(env, s) },
	PrepareUpdate: func(_ context.Context, env *resource.Env, s, _ *resourcev1.ResourceSlice) { stampTaints(env, s) },
	Validate:      validateSlice,
	ValidateUpdate: func(s, old *resourcev1.ResourceSlice) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(s.Spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))
		errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		return append(errs, apivalidation.ValidateImmutableField(s.Spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
	},
	Generation: true,
	Columns: []resource.Column[*resourcev1.ResourceSlice]{
		resource.Name[*resourcev1.ResourceSlice](),
		sliceColumn("Node", resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"], func(s *resourcev1.ResourceSliceSpec) string {
			if s.NodeName == nil {
				return "<unset>"
			}
			return *s.NodeName
		}),
		sliceColumn("Driver", resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"], func(s *resourcev1.ResourceSliceSpec) string { return s.Driver }),
		sliceColumn("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"], func(s *resourcev1.ResourceSliceSpec) string { return s.Pool.Name }),
		resource.Age[*resourcev1.ResourceSlice](),
	},
	Fields: map[string]func(*resourcev1.ResourceSlice) string{
		resourcev1.ResourceSliceSelectorNodeName: func(s *resourcev1.ResourceSlice) string {
			if s.Spec.NodeName == nil {
				return ""
			}
			return *s.Spec.NodeName
		},
		resourcev1.ResourceSliceSelectorDriver:   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
		resourcev1.ResourceSliceSelectorPoolName: func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name },
	},
	WatchField: resourcev1.ResourceSliceSelectorNodeName,
}

func sliceColumn(name, description string, value func(*resourcev1.ResourceSliceSpec) string) resource.Column[*resourcev1.ResourceSlice] {
	return resource.Column[*resourcev1.ResourceSlice]{
		Name: name, Description: description,
		Value: func(s *resourcev1.ResourceSlice) any { return value(&s.Spec) },
	}
}

// stampTaints sets the times of taints that have none.
func stampTaints(env *resource.Env, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			resource.Fill(&s.Spec.Devices[i].Taints[j].TimeAdded, metav1.NewTime(env.Clock.Now()).Rfc3339Copy())
		}
	}
}

func validateSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	spec, path := &s.Spec, field.NewPath("spec")
	errs := validateDriver(path.Child("driver"), spec.Driver)
	errs = append(errs, validatePool(path.Child("pool", "name"), spec.Pool.Name)...)
	if spec.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("pool", "resourceSliceCount"), spec.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if spec.Pool.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("pool", "generation"), spec.Pool.Generation, "must be greater than or equal to zero"))
	}
	errs = append(errs, validateNodes(path, nodes{spec.NodeName, spec.NodeSelector, spec.AllNodes, spec.PerDeviceNodeSelection}, true)...)
	devices := path.Child("devices")
	limit := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(spec.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	errs = append(errs, tooMany(devices, len(spec.Devices), limit)...)
	names := map[string]bool{}
	perDevice := spec.PerDeviceNodeSelection != nil && *spec.PerDeviceNodeSelection
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if names[d.Name] {
			errs = append(errs, field.Duplicate(devices.Index(i).Child("name"), d.Name))
		}
		names[d.Name] = true
		errs = append(errs, validateDevice(devices.Index(i), d, perDevice)...)
	}
	return append(errs, validateCounters(path.Child("sharedCounters"), spec)...)
}

// nodes are the fields by which a slice, or a device, says where it can be used.
type nodes struct {
	name      *string
	selector  *corev1.NodeSelector
	all       *bool
	perDevice *bool
}

// validateNodes requires exactly one of the fields.
func validateNodes(path *field.Path, n nodes, ofSlice bool) field.ErrorList {
	var errs field.ErrorList
	set := 0
	if n.name != nil {
		set++
		errs = append(errs, resource.Invalid(path.Child("nodeName"), *n.name, apivalidation.NameIsDNSSubdomain(*n.name, false))...)
	}
	if n.selector != nil {
		set++
		errs = append(errs, validateOneNodeTerm(path.Child("nodeSelector"), n.selector)...)
	}
	for _, f := range []struct {
		name  string
		value *bool
	}{{"allNodes", n.all}, {"perDeviceNodeSelection", n.perDevice}} {
		if f.value != nil {
			set++
			if !*f.value {
				errs = append(errs, field.Invalid(path.Child(f.name), false, "must be either unset or set to true"))
			}
		}
	}
	choices := "`nodeName`, `nodeSelector`, `allNodes`"
	if ofSlice {
		choices += ", `perDeviceNodeSelection`"
	}
	if set != 1 {
		errs = append(errs, field.Invalid(path, nil, fmt.Sprintf("exactly one of %s is required", choices)))
	}
	return errs
}

func validateOneNodeTerm(path *field.Path, selector *corev1.NodeSelector) field.ErrorList {
	errs := podspec.ValidateNodeSelector(selector, path)
	if len(selector.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(path.Child("nodeSelectorTerms"), len(selector.NodeSelectorTerms), "must have exactly one node selector term"))
	}
	return errs
}

func validateDevice(path *field.Path, d *resourcev1.Device, perDevice bool) field.ErrorList {
	errs := validateDeviceName(path.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	for name, a := range d.Attributes {
		at := path.Child("attributes").Key(string(name))
		errs = append(errs, validateQualified(at, string(name))...)
		errs = append(errs, validateAttribute(at, a)...)
	}
	for name := range d.Capacity {
		errs = append(errs, validateQualified(path.Child("capacity").Key(string(name)), string(name))...)
	}
	taints := path.Child("taints")
	errs = append(errs, tooMany(taints, len(d.Taints), resourcev1.DeviceTaintsMaxLength)...)
	for i := range d.Taints {
		errs = append(errs, validateTaint(taints.Index(i), &d.Taints[i])...)
	}
	counters := path.Child("consumesCounters")
	errs = append(errs, tooMany(counters, len(d.ConsumesCounters), resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)...)
	for i, c := range d.ConsumesCounters {
		errs = append(errs, validateDeviceName(counters.Index(i).Child("counterSet"), c.CounterSet)...)
		if len(c.Counters) == 0 {
			errs = append(errs, field.Required(counters.Index(i).Child("counters"), ""))
		}
	}
	errs = append(errs, tooMany(path.Child("bindingConditions"), len(d.BindingConditions), resourcev1.BindingConditionsMaxSize)...)
	errs = append(errs, tooMany(path.Child("bindingFailureConditions"), len(d.BindingFailureConditions), resourcev1.BindingFailureConditionsMaxSize)...)
	n := nodes{name: d.NodeName, selector: d.NodeSelector, all: d.AllNodes}
	switch {
	case perDevice:
		errs = append(errs, validateNodes(path, n, false)...)
	case n != nodes{}:
		errs = append(errs, field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	return errs
}

// validateAttribute requires exactly one value.
func validateAttribute(path *field.Path, a resourcev1.DeviceAttribute) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for _, present := range []bool{
		a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil,
		len(a.IntValues) > 0, len(a.BoolValues) > 0, len(a.StringValues) > 0, len(a.VersionValues) > 0,
	} {
		if present {
			set++
		}
	}
	if set != 1 {
		errs = append(errs, field.Invalid(path, nil, "exactly one value must be specified"))
	}
	texts, versions := a.StringValues, a.VersionValues
	if a.StringValue != nil {
		texts = append(slices.Clone(texts), *a.StringValue)
	}
	if a.VersionValue != nil {
		versions = append(slices.Clone(versions), *a.VersionValue)
	}
	for _, text := range texts {
		if len(text) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path.Child("string"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	for _, v := range versions {
		if _, err := version.ParseSemantic(v); err != nil {
			errs = append(errs, field.Invalid(path.Child("version"), v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path.Child("version"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	return errs
}

func validateTaint(path *field.Path, t *resourcev1.DeviceTaint) field.ErrorList {
	var errs field.ErrorList
	if t.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	if t.Value != "" {
		errs = append(errs, resource.Invalid(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	}
	return append(errs, resource.RequiredOneOf(path.Child("effect"), t.Effect,
		resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}

func validateCounters(path *field.Path, spec *resourcev1.ResourceSliceSpec) field.ErrorList {
	errs := tooMany(path, len(spec.SharedCounters), resourcev1.ResourceSliceMaxCounterSets)
	if len(spec.SharedCounters) > 0 && len(spec.Devices) > 0 {
		errs = append(errs, field.Invalid(path, nil, "`devices` and `sharedCounters` are mutually exclusive"))
	}
	var names []string
	for i, set := range spec.SharedCounters {
		at := path.Index(i)
		errs = append(errs, validateDeviceName(at.Child("name"), set.Name)...)
		if slices.Contains(names, set.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), set.Name))
		}
		names = append(names, set.Name)
		if len(set.Counters) == 0 {
			errs = append(errs, field.Required(at.Child("counters"), ""))
		}
		errs = append(errs, tooMany(at.Child("counters"), len(set.Counters), resourcev1.ResourceSliceMaxCountersPerCounterSet)...)
		for name := range set.Counters {
			errs = append(errs, validateDeviceName(at.Child("counters").Key(name), name)...)
		}
	}
	return errs
}
