package horizontalpodautoscaler

import (
	"context"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/internal/releases"
)

// zeroGate is the feature gate of autoscalers with minReplicas: 0 (KEP-2021).
const zeroGate = "HPAScaleToZero"

// zeroMarked is the release since which the condition ScaledToZero distinguishes a target
// that the autoscaler has scaled to zero from one that a user has.
const zeroMarked releases.Release = 36

// marksZero reports whether the condition ScaledToZero decides about targets without
// replicas.
func marksZero(ctx context.Context, env *controller.Env) (bool, error) {
	r, err := env.Discovery.Release(ctx)
	if err != nil || r < zeroMarked {
		return false, err
	}
	return env.On(ctx, zeroGate)
}

// staysAtZero reports whether a target without replicas stays so, because a user has scaled
// it. Before the condition exists, this is so unless minReplicas is 0.
func (s *syncing) staysAtZero(least int32) bool {
	if !s.marksZero {
		return least != 0
	}
	return !s.marked() || least == 0 && !s.hasMetricsWithoutPods()
}

// marked reports whether the condition ScaledToZero is true.
func (s *syncing) marked() bool {
	return slices.ContainsFunc(s.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
}

// hasMetricsWithoutPods reports whether a metric has a value without pods.
func (s *syncing) hasMetricsWithoutPods() bool {
	return slices.ContainsFunc(s.hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// resetZero resets the condition ScaledToZero of a target that was left with replicas: if it
// has none later, another client has scaled it.
func (s *syncing) resetZero(replicas int32) {
	if replicas > 0 && s.marked() {
		s.markZero(replicas, replicas)
	}
}

// markZero sets the condition ScaledToZero of a target that is scaled.
func (s *syncing) markZero(from, to int32) {
	switch {
	case !s.marksZero:
		s.unmarkZero()
	case from > 0 && to == 0 && ptr.Deref(s.hpa.Spec.MinReplicas, 1) == 0 && s.hasMetricsWithoutPods():
		s.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	default:
		s.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
}

// unmarkZero removes the condition where it does not decide: the gate is off now.
func (s *syncing) unmarkZero() {
	if !s.marksZero {
		s.hpa.Status.Conditions = slices.DeleteFunc(s.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == autoscalingv2.ScaledToZero
		})
	}
}
