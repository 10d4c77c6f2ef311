package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/exponent"
)

// The annotations of autoscaling/v1 for the values that v1 has no fields for, as
// JSON of types in k8s.io/api/autoscaling/v1. Objects of v2 do not have them.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// toV1 converts to autoscaling/v1. Its only field for metrics gets the first
// target of CPU utilization. When the object is converted back, that target comes
// after all others, and the types of targets follow from their values.
func toV1(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
	out.ObjectMeta = in.ObjectMeta
	out.Annotations = withoutCarried(in.Annotations)
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
		MinReplicas:    in.Spec.MinReplicas,
		MaxReplicas:    in.Spec.MaxReplicas,
	}
	var others []autoscalingv1.MetricSpec
	for _, m := range in.Spec.Metrics {
		if out.Spec.TargetCPUUtilizationPercentage == nil && isCPUUtilization(&m) {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		} else {
			others = append(others, metricToV1(&m))
		}
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		LastScaleTime:      in.Status.LastScaleTime,
		CurrentReplicas:    in.Status.CurrentReplicas,
		DesiredReplicas:    in.Status.DesiredReplicas,
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range in.Status.CurrentMetrics {
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		// The field does not hold all of the CPU metric's status.
		current = append(current, metricStatusToV1(&m))
	}
	for _, carried := range []struct {
		annotation string
		none       bool
		value      any
	}{
		{metricsAnnotation, len(others) == 0, others},
		{currentMetricsAnnotation, len(current) == 0, current},
		{conditionsAnnotation, len(in.Status.Conditions) == 0, in.Status.Conditions},
		{behaviorAnnotation, in.Spec.Behavior == nil, carriedBehavior(in.Spec.Behavior)},
	} {
		if carried.none {
			continue
		}
		text, err := json.Marshal(carried.value)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", carried.annotation, err)
		}
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, carried.annotation, string(text))
	}
	return nil
}

// fromV1 converts from autoscaling/v1 and its annotations. An annotation that
// cannot be parsed is an error.
func fromV1(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) error {
	out.ObjectMeta = in.ObjectMeta
	out.Annotations = withoutCarried(in.Annotations)
	var others []autoscalingv1.MetricSpec
	var current []autoscalingv1.MetricStatus
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	for annotation, value := range map[string]any{
		metricsAnnotation: &others, currentMetricsAnnotation: &current, conditionsAnnotation: &out.Status.Conditions, behaviorAnnotation: &behavior,
	} {
		text, found := in.Annotations[annotation]
		if !found {
			continue
		}
		if err := exponent.Unmarshal([]byte(text), value); err != nil {
			return unreadableAnnotation(annotation, err)
		}
	}
	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
	for _, m := range others {
		out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&m))
	}
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuUtilization(*percent))
	}
	if behavior != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = &behavior
	}
	out.Status.ObservedGeneration, out.Status.LastScaleTime = in.Status.ObservedGeneration, in.Status.LastScaleTime
	out.Status.CurrentReplicas, out.Status.DesiredReplicas = in.Status.CurrentReplicas, in.Status.DesiredReplicas
	for _, m := range current {
		out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusFromV1(&m))
	}
	if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil && len(current) == 0 {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
		}}}
	}
	return nil
}

// unreadableAnnotation is an error of the client, also where a patch is converted, whose
// other errors are the server's.
func unreadableAnnotation(annotation string, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("annotation %s: %v", annotation, err))
}

func isCPUUtilization(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

// withoutCarried returns the annotations without those of the conversion.
func withoutCarried(annotations map[string]string) map[string]string {
	rest := maps.Clone(annotations)
	for _, a := range []string{metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation} {
		delete(rest, a)
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// carriedBehavior returns the behavior with the field names that Kubernetes writes
// in the annotation. They are read case-insensitively.
func carriedBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) any {
	type policy struct {
		Type          autoscalingv2.HPAScalingPolicyType
		Value         int32
		PeriodSeconds int32
	}
	type rules struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []policy
		Tolerance                  *resource.Quantity
	}
	named := func(in *autoscalingv2.HPAScalingRules) *rules {
		if in == nil {
			return nil
		}
		policies := make([]policy, 0, len(in.Policies))
		for _, p := range in.Policies {
			policies = append(policies, policy(p))
		}
		return &rules{in.StabilizationWindowSeconds, in.SelectPolicy, policies, in.Tolerance}
	}
	if b == nil {
		return nil
	}
	return struct{ ScaleUp, ScaleDown *rules }{named(b.ScaleUp), named(b.ScaleDown)}
}

func metricToV1(m *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name, Selector: s.Metric.Selector,
			TargetValue: ptr.Deref(s.Target.Value, resource.Quantity{}), AverageValue: s.Target.AverageValue,
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: s.Metric.Name, Selector: s.Metric.Selector, TargetAverageValue: ptr.Deref(s.Target.AverageValue, resource.Quantity{}),
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: s.Name, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector, TargetValue: s.Target.Value, TargetAverageValue: s.Target.AverageValue,
		}
	}
	return out
}

func metricFromV1(m *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &s.TargetValue},
		}
		if s.AverageValue != nil {
			out.Object.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: s.AverageValue}
			// v1 always has the value; zero means none.
			if !s.TargetValue.IsZero() {
				out.Object.Target.Value = &s.TargetValue
			}
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &s.TargetAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: s.Name, Target: usageTarget(s.TargetAverageUtilization, s.TargetAverageValue)}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, Target: usageTarget(s.TargetAverageUtilization, s.TargetAverageValue),
		}
	}
	if s := m.External; s != nil {
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, Value: s.TargetValue, AverageValue: s.TargetAverageValue}
		if s.TargetValue != nil {
			target.Type = autoscalingv2.ValueMetricType
		}
		out.External = &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector}, Target: target}
	}
	return out
}

func usageTarget(percent *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: value, AverageUtilization: percent}
	if percent != nil {
		target.Type = autoscalingv2.UtilizationMetricType
	}
	return target
}
