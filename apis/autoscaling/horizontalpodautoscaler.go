package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	autoscalingv2beta2 "svc.dev/svc/apis/removed/autoscaling/v2beta2"
	"svc.dev/svc/apis/resource"
)

var horizontalPodAutoscalers = resource.Type[*autoscalingv2.HorizontalPodAutoscaler]{
	Name: "horizontalpodautoscalers", ShortNames: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
	Versions: []resource.Version{
		resource.Convert(fromV1, toV1),
		resource.Alike[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2beta2.HorizontalPodAutoscaler](),
		resource.Convert(fromV2beta1, toV2beta1),
	},
	Default:  defaultHorizontalPodAutoscaler,
	Validate: validateHorizontalPodAutoscaler,
	ValidateCreate: func(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
		return validateTargetVersion(&h.Spec.ScaleTargetRef)
	},
	ValidateUpdate: validateHorizontalPodAutoscalerUpdate,
	Generation:     true,
	GenerationGate: "HPAGeneration",
	Status:         true,
	ValidateStatus: validateHorizontalPodAutoscalerStatus,
	Columns: []resource.Column[*autoscalingv2.HorizontalPodAutoscaler]{
		resource.Name[*autoscalingv2.HorizontalPodAutoscaler](),
		{Name: "Reference", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["scaleTargetRef"],
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
				return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name
			}},
		{Name: "Targets", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"], Until: 29,
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
				return formatMetrics(h.Spec.Metrics, h.Status.CurrentMetrics, false)
			}},
		{Name: "Targets", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"], Since: 30,
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
				return formatMetrics(h.Spec.Metrics, h.Status.CurrentMetrics, true)
			}},
		{Name: "MinPods", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["minReplicas"],
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
				if h.Spec.MinReplicas == nil {
					return "<unset>"
				}
				return fmt.Sprint(*h.Spec.MinReplicas)
			}},
		{Name: "MaxPods", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["maxReplicas"],
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any { return int64(h.Spec.MaxReplicas) }},
		{Name: "Replicas", Description: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"],
			Value: func(h *autoscalingv2.HorizontalPodAutoscaler) any { return int64(h.Status.CurrentReplicas) }},
		resource.Age[*autoscalingv2.HorizontalPodAutoscaler](),
	},
}

// defaultCPUUtilization, in percent of the requests, is the target of an
// autoscaler without metrics.
const defaultCPUUtilization = 80

func defaultHorizontalPodAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	resource.Fill(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	// If only one direction has rules, the other has the defaults.
	if behavior := h.Spec.Behavior; behavior != nil {
		resource.Fill(&behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
		resource.Fill(&behavior.ScaleUp.StabilizationWindowSeconds, 0)
		defaultRules(behavior.ScaleUp,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
		resource.Fill(&behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
		defaultRules(behavior.ScaleDown,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
	}
}

func defaultRules(rules *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	resource.Fill(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if rules.Policies == nil {
		rules.Policies = policies
	}
}

func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name:   corev1.ResourceCPU,
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

// maxMetrics is how many metrics the table shows.
const maxMetrics = 2

// formatMetrics returns the current and the target value of each metric, and with names
// those of the resources, as releases since 1.30 do.
func formatMetrics(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus, names bool) string {
	if len(specs) == 0 {
		return "<none>"
	}
	var shown []string
	for i, spec := range specs {
		if i == maxMetrics {
			return fmt.Sprintf("%s + %d more...", strings.Join(shown, ", "), len(specs)-maxMetrics)
		}
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		shown = append(shown, formatMetric(&spec, &status, names))
	}
	return strings.Join(shown, ", ")
}

func formatMetric(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus, names bool) string {
	named := func(name corev1.ResourceName, usage string) string {
		if names {
			return string(name) + ": " + usage
		}
		return usage
	}
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return formatValue(spec.External.Target, ptr.Deref(status.External, autoscalingv2.ExternalMetricStatus{}).Current)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return formatValue(spec.Object.Target, ptr.Deref(status.Object, autoscalingv2.ObjectMetricStatus{}).Current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		current := ptr.Deref(status.Pods, autoscalingv2.PodsMetricStatus{}).Current
		return orUnknown(current.AverageValue) + "/" + orUnknown(spec.Pods.Target.AverageValue)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return named(spec.Resource.Name, formatUsage(spec.Resource.Target, ptr.Deref(status.Resource, autoscalingv2.ResourceMetricStatus{}).Current))
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return named(spec.ContainerResource.Name, formatUsage(spec.ContainerResource.Target, ptr.Deref(status.ContainerResource, autoscalingv2.ContainerResourceMetricStatus{}).Current))
	}
	return "<unknown type>"
}

// formatValue formats a metric that is a total or an average over the pods.
func formatValue(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return orUnknown(current.AverageValue) + "/" + target.AverageValue.String() + " (avg)"
	}
	return orUnknown(current.Value) + "/" + orUnknown(target.Value)
}

// formatUsage formats the usage of a resource, absolute or in percent of the
// requests.
func formatUsage(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return orUnknown(current.AverageValue) + "/" + target.AverageValue.String()
	}
	percent := func(v *int32, unset string) string {
		if v == nil {
			return unset
		}
		return fmt.Sprintf("%d%%", *v)
	}
	return percent(current.AverageUtilization, "<unknown>") + "/" + percent(target.AverageUtilization, "<auto>")
}

func orUnknown(v *quantity.Quantity) string {
	if v == nil {
		return "<unknown>"
	}
	return v.String()
}
