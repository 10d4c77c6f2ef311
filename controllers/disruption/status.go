package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deletionTimeout is how long a pod whose eviction the API server has allowed
// counts as disrupted without being deleted. The clocks of both must agree that
// well.
const deletionTimeout = 2 * time.Minute

// counts are how many pods there should be, and how many of them healthy.
type counts struct {
	pods, healthy int32
}

// scaleMatters tells whether a budget counts the pods that there should be, and
// not those that are there.
func scaleMatters(budget *policyv1.PodDisruptionBudget) bool {
	least := budget.Spec.MinAvailable
	return budget.Spec.MaxUnavailable != nil || least != nil && least.Type == intstr.String
}

// expected are the counts of a budget, given how many pods there should be.
// Percentages are rounded up.
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

// disrupted are the pods whose eviction was allowed.
type disrupted struct {
	// pending are about to be deleted, and next is when the first of them is
	// given up; zero is never.
	pending map[string]metav1.Time
	next    time.Time
	// spared have not been deleted in time.
	spared []*corev1.Pod
}

// disruptions looks what has become of the pods whose eviction was allowed.
func disruptions(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) disrupted {
	var d disrupted
	for _, pod := range pods {
		since, ok := budget.Status.DisruptedPods[pod.Name]
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		until := since.Add(deletionTimeout)
		if !until.After(now) {
			d.spared = append(d.spared, pod)
			continue
		}
		if d.pending == nil {
			d.pending = map[string]metav1.Time{}
		}
		d.pending[pod.Name] = since
		if d.next.IsZero() || until.Before(d.next) {
			d.next = until
		}
	}
	return d
}

// status is the status of a budget. One that expects no pods allows nothing: the
// first pods would be there before the next status.
func status(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, wanted counts, pending map[string]metav1.Time, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := *budget.Status.DeepCopy()
	s.ObservedGeneration = budget.Generation
	s.DisruptedPods = pending
	s.ExpectedPods, s.DesiredHealthy, s.CurrentHealthy = wanted.pods, wanted.healthy, 0
	for _, pod := range pods {
		if _, goes := pending[pod.Name]; !goes && pod.DeletionTimestamp == nil && ready(pod) {
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

// failed is the status of a budget that cannot be calculated.
func failed(budget *policyv1.PodDisruptionBudget, err error, now time.Time) policyv1.PodDisruptionBudgetStatus {
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

// ready tells whether a pod is healthy: KEP-85 means the condition Ready.
func ready(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == name {
			return c
		}
	}
	return nil
}
