package autoscaling

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv2beta1 "svc.dev/svc/apis/removed/autoscaling/v2beta1"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/exponent"
)

// toV2beta1 converts to autoscaling/v2beta1, which has the metrics of v1's annotations
// and no field for the behavior.
func toV2beta1(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv2beta1.HorizontalPodAutoscaler) error {
	resource.CopyFields(&in.ObjectMeta, &out.ObjectMeta)
	out.Annotations = withoutCarried(in.Annotations)
	out.Spec.ScaleTargetRef = autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
	for i := range in.Spec.Metrics {
		out.Spec.Metrics = append(out.Spec.Metrics, metricToV1(&in.Spec.Metrics[i]))
	}
	resource.CopyFields(&in.Status, &out.Status)
	out.Status.CurrentMetrics = nil
	for i := range in.Status.CurrentMetrics {
		out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusToV1(&in.Status.CurrentMetrics[i]))
	}
	if in.Spec.Behavior == nil {
		return nil
	}
	text, err := json.Marshal(carriedBehavior(in.Spec.Behavior))
	if err != nil {
		return fmt.Errorf("annotation %s: %w", behaviorAnnotation, err)
	}
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, behaviorAnnotation, string(text))
	return nil
}

func fromV2beta1(in *autoscalingv2beta1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) error {
	resource.CopyFields(&in.ObjectMeta, &out.ObjectMeta)
	out.Annotations = withoutCarried(in.Annotations)
	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
	for i := range in.Spec.Metrics {
		out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&in.Spec.Metrics[i]))
	}
	resource.CopyFields(&in.Status, &out.Status)
	out.Status.CurrentMetrics = nil
	for i := range in.Status.CurrentMetrics {
		out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusFromV1(&in.Status.CurrentMetrics[i]))
	}
	text, found := in.Annotations[behaviorAnnotation]
	if !found {
		return nil
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if err := exponent.Unmarshal([]byte(text), &behavior); err != nil {
		return unreadableAnnotation(behaviorAnnotation, err)
	}
	if behavior != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = &behavior
	}
	return nil
}
