package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// limits are how many pods there may be beyond the desired number, and how many
// of that number may be unavailable, during a rolling update. Percentages are of
// the desired number; of pods, surge rounds up and unavailable down. If that
// makes both zero, one pod may be unavailable, as else nothing would go on. Any
// other strategy has no limits: both are zero.
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

// amount resolves a number or a percentage. The API server has validated it.
func amount(v *intstr.IntOrString, of int32, roundUp bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(v, intstr.FromInt32(0))), int(of), roundUp)
	if err != nil {
		return 0
	}
	return int32(n)
}

// largest is how many pods there may be.
func largest(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return *d.Spec.Replicas + surge
}

// leastAvailable is how many pods must be available.
func leastAvailable(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return *d.Spec.Replicas - unavailable
}
