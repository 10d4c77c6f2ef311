package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"svc.dev/svc/apis/podspec"
)

// deletionTimeout is how long a pod whose eviction the API server has allowed
// counts as disrupted without being deleted. It bounds the clock skew between the
// API server and the controller.
const deletionTimeout = 2 * time.Minute

// counts are the numbers of expected pods, and of those that must be healthy.
type counts struct {
	pods, healthy int32
}

// dependsOnScale reports whether a budget depends on the scale of the pods'
// controllers, and not only on the pods that exist.
func dependsOnScale(budget *policyv1.PodDisruptionBudget) bool {
	least := budget.Spec.MinAvailable
	return budget.Spec.MaxUnavailable != nil || least != nil && least.Type == intstr.String
}

// expected returns the counts of a budget at a scale. Percentages are rounded up.
func expected(budget *policyv1.PodDisruptionBudget, scale int32) (counts, error) {
	switch {
	case budget.Spec.MaxUnavailable != nil:
		most, err := intstr.GetScaledValueFromIntOrPercent(budget.Spec.MaxUnavailable, int(scale), true)
		return counts{scale, max(0, scale-int32(most))}, err
	case budget.Spec.MinAvailable != nil:
		least, err := intstr.GetScaledValueFromIntOrPercent(budget.Spec.MinAvailable, int(scale), true)
		return counts{scale, int32(least)}, err
	}
	return counts{}, nil
}

// disrupted are the pods whose eviction the API server has allowed.
type disrupted struct {
	// pending are not deleted yet, and expiry is when the first of them no longer
	// counts as disrupted; zero is never.
	pending map[string]metav1.Time
	expiry  time.Time
	// expired were not deleted within deletionTimeout.
	expired []*corev1.Pod
}

// evictions sorts the pods whose eviction was allowed by whether they can still
// be expected to be deleted.
func evictions(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) disrupted {
	var d disrupted
	for _, pod := range pods {
		since, ok := budget.Status.DisruptedPods[pod.Name]
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		until := since.Add(deletionTimeout)
		if !until.After(now) {
			d.expired = append(d.expired, pod)
			continue
		}
		if d.pending == nil {
			d.pending = map[string]metav1.Time{}
		}
		d.pending[pod.Name] = since
		if d.expiry.IsZero() || until.Before(d.expiry) {
			d.expiry = until
		}
	}
	return d
}

// nextStatus returns the status of a budget. A budget that expects no pods allows
// no disruptions: new pods can exist before the next sync.
func nextStatus(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, wanted counts, pending map[string]metav1.Time, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := *budget.Status.DeepCopy()
	s.ObservedGeneration = budget.Generation
	s.DisruptedPods = pending
	s.ExpectedPods, s.DesiredHealthy, s.CurrentHealthy = wanted.pods, wanted.healthy, 0
	for _, pod := range pods {
		if _, evicted := pending[pod.Name]; !evicted && pod.DeletionTimestamp == nil && ready(pod) {
			s.CurrentHealthy++
		}
	}
	s.DisruptionsAllowed = 0
	if wanted.pods > 0 {
		s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
	}
	condition := metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
	if s.DisruptionsAllowed > 0 {
		condition = metav1.Condition{Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}
	}
	setAllowed(&s, condition, now)
	return s
}

// failedStatus returns the status of a budget that cannot be computed.
func failedStatus(budget *policyv1.PodDisruptionBudget, err error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := *budget.Status.DeepCopy()
	s.DisruptionsAllowed = 0
	setAllowed(&s, metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: err.Error()}, now)
	return s
}

func setAllowed(s *policyv1.PodDisruptionBudgetStatus, c metav1.Condition, now time.Time) {
	c.Type, c.ObservedGeneration = policyv1.DisruptionAllowedCondition, s.ObservedGeneration
	if was := meta.FindStatusCondition(s.Conditions, c.Type); was == nil || was.Status != c.Status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// ready reports whether a pod is healthy, by its condition Ready (KEP-85).
func ready(pod *corev1.Pod) bool {
	return podspec.IsConditionTrue(&pod.Status, corev1.PodReady)
}

// targetTimeout is how long a pod can have the condition DisruptionTarget without
// being deleted (KEP-3329).
const targetTimeout = 2 * time.Minute

// disruptionTargetSince returns since when the pod has had the condition
// DisruptionTarget, if that can expire; nil otherwise. It does not expire for a
// termination by the node, which can take any time, nor for terminated pods, which
// keep it as their reason.
func disruptionTargetSince(pod *corev1.Pod) *time.Time {
	c := podspec.Condition(&pod.Status, corev1.DisruptionTarget)
	switch {
	case c == nil, c.Status != corev1.ConditionTrue, c.Reason == corev1.PodReasonTerminationByKubelet,
		pod.DeletionTimestamp != nil, podspec.IsTerminal(pod.Status.Phase):
		return nil
	}
	return &c.LastTransitionTime.Time
}
