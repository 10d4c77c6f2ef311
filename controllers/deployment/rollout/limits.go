package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// limits returns maxSurge and maxUnavailable of a rolling update in pods. Percentages
// are of the desired number; surge is rounded up and unavailable down. If both would
// be zero, unavailable is one, because the update could not proceed. For any other
// strategy both are zero.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	desired := *d.Spec.Replicas
	surge, unavailable = amount(rolling.MaxSurge, desired, true), amount(rolling.MaxUnavailable, desired, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, desired)
}

// amount resolves a number or a percentage, which the API server has validated.
func amount(v *intstr.IntOrString, of int32, roundUp bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(v, intstr.FromInt32(0))), int(of), roundUp)
	if err != nil {
		return 0
	}
	return int32(n)
}

// largest returns the maximum number of pods.
func largest(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return *d.Spec.Replicas + surge
}

// leastAvailable returns the minimum number of available pods.
func leastAvailable(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return *d.Spec.Replicas - unavailable
}
