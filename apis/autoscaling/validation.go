package autoscaling

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

const (
	// maxPeriodSeconds bounds the period of a scaling policy.
	maxPeriodSeconds = 1800
	// maxStabilizationWindowSeconds bounds how long recommendations count.
	maxStabilizationWindowSeconds = 3600
)

func validateHorizontalPodAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec, path := &h.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if least := spec.MinReplicas; least != nil {
		if *least < 0 {
			errs = append(errs, field.Invalid(path.Child("minReplicas"), *least, "must be greater than or equal to 0"))
		}
		if spec.MaxReplicas < *least {
			errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
		}
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(path.Child("maxReplicas"), "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	errs = slices.Concat(errs, validateReference(&spec.ScaleTargetRef, path.Child("scaleTargetRef")))
	for i := range spec.Metrics {
		errs = slices.Concat(errs, validateMetric(&spec.Metrics[i], path.Child("metrics").Index(i)))
	}
	// Without pods there are neither resource usage nor metrics of pods.
	if least := spec.MinReplicas; least != nil && *least == 0 && !slices.ContainsFunc(spec.Metrics, knownWithoutPods) {
		errs = append(errs, field.Forbidden(path.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if spec.Behavior != nil {
		errs = slices.Concat(errs,
			validateRules(spec.Behavior.ScaleUp, path.Child("behavior", "scaleUp")),
			validateRules(spec.Behavior.ScaleDown, path.Child("behavior", "scaleDown")))
	}
	return errs
}

func knownWithoutPods(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
}

// validateHorizontalPodAutoscalerUpdate validates the apiVersion of the target only
// if it changes: many autoscalers are older than that rule.
func validateHorizontalPodAutoscalerUpdate(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	ref, was := &h.Spec.ScaleTargetRef, &old.Spec.ScaleTargetRef
	if ref.APIVersion == was.APIVersion && ref.Kind == was.Kind {
		return nil
	}
	return validateTargetVersion(ref)
}

func validateTargetVersion(ref *autoscalingv2.CrossVersionObjectReference) field.ErrorList {
	// It is the only kind of the core group with a scale subresource.
	inCore := ref.Kind == "ReplicationController"
	return validateVersion(ref.APIVersion, inCore, field.NewPath("spec", "scaleTargetRef", "apiVersion"))
}

func validateVersion(version string, allowCore bool, path *field.Path) field.ErrorList {
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, version, err.Error())}
	case gv.Group == "" && !allowCore:
		return field.ErrorList{field.Invalid(path, version, "apiVersion must specify API group")}
	}
	return nil
}

func validateReference(ref *autoscalingv2.CrossVersionObjectReference, path *field.Path) field.ErrorList {
	return slices.Concat(
		validateSegment(ref.Kind, "", path.Child("kind")),
		validateSegment(ref.Name, "", path.Child("name")))
}

// validateSegment requires a part of a URL's path; missing is the message if
// there is none.
func validateSegment(value, missing string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	return resource.Invalid(path, value, content.IsPathSegmentName(value))
}

// metricSource is one of the fields of a metric. The metric's type names the field
// that is set.
type metricSource struct {
	Type     autoscalingv2.MetricSourceType
	Field    string
	Set      bool
	Validate func(path *field.Path) field.ErrorList
}

func metricSources(m *autoscalingv2.MetricSpec) []metricSource {
	return []metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(p *field.Path) field.ErrorList { return validateObjectSource(m.Object, p) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(p *field.Path) field.ErrorList { return validateExternalSource(m.External, p) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *field.Path) field.ErrorList { return validatePodsSource(m.Pods, p) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(p *field.Path) field.ErrorList {
			return slices.Concat(required(string(m.Resource.Name), "must specify a resource name", p.Child("name")), validateUsage(&m.Resource.Target, p.Child("target")))
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(p *field.Path) field.ErrorList {
			return validateContainerSource(m.ContainerResource, p)
		}},
	}
}

func validateMetric(m *autoscalingv2.MetricSpec, path *field.Path) field.ErrorList {
	errs := required(string(m.Type), "must specify a metric source type", path.Child("type"))
	var types []autoscalingv2.MetricSourceType
	var set []metricSource
	for _, source := range metricSources(m) {
		types = append(types, source.Type)
		if source.Set {
			set = append(set, source)
		} else if source.Type == m.Type {
			errs = append(errs, field.Required(path.Child(source.Field), "must populate information for the given metric source"))
		}
	}
	if len(set) > 0 {
		errs = slices.Concat(errs, set[0].Validate(path.Child(set[0].Field)))
	}
	for _, source := range set {
		if len(set) > 1 && source.Type != m.Type {
			errs = append(errs, field.Forbidden(path.Child(source.Field), "must populate the given metric source only"))
		}
	}
	slices.Sort(types)
	return slices.Concat(errs, resource.OneOf(path.Child("type"), m.Type, types...))
}

func validateObjectSource(s *autoscalingv2.ObjectMetricSource, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validateReference(&s.DescribedObject, path.Child("describedObject")),
		validateVersion(s.DescribedObject.APIVersion, true, path.Child("describedObject", "apiVersion")),
		validateSegment(s.Metric.Name, "must specify a metric name", path.Child("metric", "name")),
		validateTarget(&s.Target, path.Child("target")))
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternalSource(s *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validateSegment(s.Metric.Name, "must specify a metric name", path.Child("metric", "name")),
		validateTarget(&s.Target, path.Child("target")))
	switch value, average := s.Target.Value != nil, s.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePodsSource(s *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validateSegment(s.Metric.Name, "must specify a metric name", path.Child("metric", "name")),
		validateTarget(&s.Target, path.Child("target")))
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateContainerSource(s *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		required(string(s.Name), "must specify a resource name", path.Child("name")),
		required(s.Container, "must specify a container", path.Child("container")))
	if s.Name != "" {
		errs = slices.Concat(errs, validateResourceName(string(s.Name), path.Child("name")))
	}
	if s.Container != "" {
		errs = slices.Concat(errs, resource.Invalid(path.Child("container"), s.Container, validation.IsDNS1123Label(s.Container)))
	}
	return slices.Concat(errs, validateUsage(&s.Target, path.Child("target")))
}

// validateResourceName requires a resource that containers can request: a standard
// one or one with a domain.
func validateResourceName(name string, path *field.Path) field.ErrorList {
	errs := resource.Invalid(path, name, validation.IsQualifiedName(name))
	domain, _, qualified := strings.Cut(name, "/")
	switch {
	case name == "cpu" || name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, "hugepages-"):
	case !qualified:
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	case strings.Contains(domain, "kubernetes.io"):
	case len(errs) > 0 || strings.HasPrefix(name, "requests."):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateUsage validates the target of a resource's usage, which is either
// absolute or in percent of the requests.
func validateUsage(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := validateTarget(t, path)
	switch percent, value := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !percent && !value:
		errs = append(errs, field.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case percent && value:
		errs = append(errs, field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := required(string(t.Type), "must specify a metric target type", path.Child("type"))
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

func validateRules(rules *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if rules == nil {
		return nil
	}
	var errs field.ErrorList
	if window := rules.StabilizationWindowSeconds; window != nil && *window < 0 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *window, "must be greater than or equal to zero"))
	} else if window != nil && *window > maxStabilizationWindowSeconds {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *window, fmt.Sprintf("must be less than or equal to %d", maxStabilizationWindowSeconds)))
	}
	if p := rules.SelectPolicy; p != nil {
		errs = slices.Concat(errs, resource.OneOf(path.Child("selectPolicy"), *p, autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect))
	}
	if len(rules.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range rules.Policies {
		errs = slices.Concat(errs, validatePolicy(&p, path.Child("policies").Index(i)))
	}
	if rules.Tolerance != nil && rules.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), rules.Tolerance.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}

func validatePolicy(p *autoscalingv2.HPAScalingPolicy, path *field.Path) field.ErrorList {
	errs := resource.OneOf(path.Child("type"), p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
	if p.Value <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), p.Value, "must be greater than zero"))
	}
	if p.PeriodSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
	} else if p.PeriodSeconds > maxPeriodSeconds {
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds)))
	}
	return errs
}

func required(value, msg string, path *field.Path) field.ErrorList {
	if value != "" {
		return nil
	}
	return field.ErrorList{field.Required(path, msg)}
}

func validateHorizontalPodAutoscalerStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return workload.ValidateCounts(field.NewPath("status"),
		workload.Of("currentReplicas", h.Status.CurrentReplicas),
		workload.Of("desiredReplicas", h.Status.DesiredReplicas))
}
