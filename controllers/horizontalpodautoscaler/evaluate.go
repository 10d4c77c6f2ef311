package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// evaluator evaluates the metrics of an autoscaler.
type evaluator struct {
	metrics  *metrics
	target   *decide.Target
	selector labels.Selector
	// namespace is the autoscaler's.
	namespace string
}

// evaluate returns what a metric proposes, and its status if it proposes anything.
func (e *evaluator) evaluate(ctx context.Context, spec *autoscalingv2.MetricSpec) (decide.Metric, autoscalingv2.MetricStatus) {
	status := autoscalingv2.MetricStatus{Type: spec.Type}
	var m decide.Metric
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		source := spec.Resource
		status.Resource = &autoscalingv2.ResourceMetricStatus{Name: source.Name}
		m.Failure, m.Source = "FailedGetResourceMetric", string(source.Name)+" resource"
		m.Name, m.Proposal, m.Err = e.resource(ctx, string(source.Name), "", &source.Target, &status.Resource.Current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		source := spec.ContainerResource
		status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: source.Name, Container: source.Container}
		m.Failure, m.Source = "FailedGetContainerResourceMetric", source.Container+" container"
		m.Name, m.Proposal, m.Err = e.resource(ctx, string(source.Name), source.Container, &source.Target, &status.ContainerResource.Current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		source := spec.Pods
		status.Pods = &autoscalingv2.PodsMetricStatus{Metric: source.Metric}
		m.Failure, m.Source, m.Name = "FailedGetPodsMetric", "pods", "pods metric "+source.Metric.Name
		m.Proposal, m.Err = e.perPod(source, &status.Pods.Current)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		source := spec.Object
		status.Object = &autoscalingv2.ObjectMetricStatus{Metric: source.Metric, DescribedObject: source.DescribedObject}
		m.Failure, m.Source, m.Name = "FailedGetObjectMetric", "object", fmt.Sprintf("%s metric %s", source.DescribedObject.Kind, source.Metric.Name)
		usage, err := e.metrics.object(e.namespace, source.DescribedObject, source.Metric)
		if err != nil {
			err = fmt.Errorf("unable to get metric %s: %w on %s %s/%s", source.Metric.Name, err, source.DescribedObject.Kind, e.namespace, source.DescribedObject.Name)
		}
		m.Proposal, m.Err = e.shared(usage, err, ofType(source.Target), &status.Object.Current)
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		source := spec.External
		status.External = &autoscalingv2.ExternalMetricStatus{Metric: source.Metric}
		m.Failure, m.Source, m.Name = "FailedGetExternalMetric", source.Metric.Name+" external", "external metric "+source.Metric.Name
		usage, err := e.metrics.sum(e.namespace, source.Metric)
		if err != nil {
			err = fmt.Errorf("unable to get external metric %s/%s/%v: %w", e.namespace, source.Metric.Name, source.Metric.Selector, err)
		}
		m.Proposal, m.Err = e.shared(usage, err, source.Target, &status.External.Current)
	default:
		m.Failure, m.Err = "InvalidMetricSourceType", fmt.Errorf("unknown metric source type %q", spec.Type)
	}
	return m, status
}

var errNoTarget = errors.New("neither an average utilization target nor an average value (usage) target was set")

// resource evaluates a resource of all containers of the pods, or of one.
func (e *evaluator) resource(ctx context.Context, name, container string, target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) (described string, p decide.Proposal, err error) {
	of, what := name+" resource", "usage"
	if container != "" {
		of = name + " container resource"
	}
	r := corev1.ResourceName(name)
	samples, err := e.metrics.resource(ctx, e.namespace, e.target.Pods, r, container)
	if err != nil {
		err = fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	switch {
	case target.AverageValue != nil:
		if err == nil {
			p, err = decide.PerPod(e.target, samples, r, target.AverageValue.MilliValue())
		}
	case target.AverageUtilization != nil:
		of, what = of+" utilization (percentage of request)", "utilization"
		if err == nil {
			p, err = decide.Resource(e.target, samples, r, container, *target.AverageUtilization)
		}
		current.AverageUtilization = &p.Utilization
	default:
		return of, p, fmt.Errorf("invalid resource metric source: %w", errNoTarget)
	}
	if err != nil {
		return of, p, fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	current.AverageValue = quantity(r, p.Usage)
	return of, p, nil
}

// perPod evaluates a custom metric of the pods.
func (e *evaluator) perPod(source *autoscalingv2.PodsMetricSource, current *autoscalingv2.MetricValueStatus) (decide.Proposal, error) {
	if source.Target.AverageValue == nil {
		return decide.Proposal{}, errors.New("invalid pods metric source: target.averageValue is not set")
	}
	samples, err := e.metrics.perPod(e.namespace, e.selector, source.Metric)
	var p decide.Proposal
	if err == nil {
		p, err = decide.PerPod(e.target, samples, "", source.Target.AverageValue.MilliValue())
	}
	if err != nil {
		return p, fmt.Errorf("unable to get metric %s: %w", source.Metric.Name, err)
	}
	current.AverageValue = milli(p.Usage)
	return p, nil
}

// ofType returns a target without the values that its type does not name. The type counts for
// metrics of objects; for external ones, kube-controller-manager ignores it.
func ofType(target autoscalingv2.MetricTarget) autoscalingv2.MetricTarget {
	if target.Type != autoscalingv2.ValueMetricType {
		target.Value = nil
	}
	if target.Type != autoscalingv2.AverageValueMetricType {
		target.AverageValue = nil
	}
	return target
}

// shared evaluates a value that the pods share, unless reading it failed.
func (e *evaluator) shared(usage int64, failed error, target autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) (decide.Proposal, error) {
	if failed != nil {
		return decide.Proposal{}, failed
	}
	switch {
	case target.AverageValue != nil:
		p := decide.AverageValue(e.target, usage, target.AverageValue.MilliValue())
		current.AverageValue = milli(p.Usage)
		return p, nil
	case target.Value != nil:
		p, err := decide.Value(e.target, usage, target.Value.MilliValue())
		current.Value = milli(p.Usage)
		return p, err
	}
	return decide.Proposal{}, errors.New("invalid metric source: neither a value target nor an average value target was set")
}

// quantity returns an amount of a resource in the form in which metrics-server reports it:
// memory in powers of 1024.
func quantity(r corev1.ResourceName, n int64) *resource.Quantity {
	if r == corev1.ResourceMemory {
		return resource.NewMilliQuantity(n, resource.BinarySI)
	}
	return milli(n)
}

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
