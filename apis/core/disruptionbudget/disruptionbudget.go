// Package disruptionbudget owns the decision what the PodDisruptionBudgets of a
// namespace mean for the eviction of a pod (KEP-85, KEP-3017).
package disruptionbudget

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"svc.dev/svc/apis/podspec"
)

// Resource is the resource of PodDisruptionBudgets.
var Resource = policyv1.Resource("poddisruptionbudgets")

// Decision says how a pod may be evicted.
type Decision struct {
	// Budget is the budget that selects the pod; nil if no budget does, or if the
	// pod's eviction is no disruption.
	Budget *policyv1.PodDisruptionBudget
	// Take requires that one disruption is taken from Budget (see Take) before the
	// pod is deleted.
	Take bool
	// SameVersion requires that only the version of the pod that was decided on is
	// deleted: if the pod has become ready since, its eviction is a disruption.
	SameVersion bool
}

// Decide returns how the pod may be evicted, given the budgets of its
// namespace. The eviction of a pod that is pending, has terminated or is being
// deleted is no disruption. An unready pod is evicted without a disruption if
// the budget's policy for unhealthy pods allows it. The error is an apierror:
// a pod that two budgets select cannot be evicted.
func Decide(pod *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (Decision, error) {
	if podspec.IsTerminal(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return Decision{}, nil
	}
	if pod.Status.Phase == corev1.PodPending {
		return Decision{SameVersion: true}, nil
	}
	var selecting []*policyv1.PodDisruptionBudget
	for _, b := range budgets {
		// An invalid selector selects nothing.
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(pod.Labels)) {
			selecting = append(selecting, b)
		}
	}
	switch len(selecting) {
	case 0:
		return Decision{}, nil
	case 1:
	default:
		return Decision{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	budget := selecting[0]
	if !podspec.IsConditionTrue(&pod.Status, corev1.PodReady) && allowsUnready(budget) {
		return Decision{Budget: budget, SameVersion: true}, nil
	}
	return Decision{Budget: budget, Take: true}, nil
}

// allowsUnready reports whether unready pods can be evicted without a
// disruption: the policy is AlwaysAllow, or enough other pods are healthy.
func allowsUnready(b *policyv1.PodDisruptionBudget) bool {
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// maxDisruptedPods bounds the evictions in status.disruptedPods, which the
// disruption controller has not observed yet.
const maxDisruptedPods = 2000

// retryAfter is the time in seconds after which a client should retry while the
// disruption controller has not processed the budget.
const retryAfter = 10

// Take takes one disruption for the named pod from the budget's status, or
// returns the apierror that refuses the eviction.
func Take(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return NotProcessed(b.Name)
	case b.Status.DisruptionsAllowed < 0:
		return forbidden(b.Name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(b.Status.DisruptedPods) > maxDisruptedPods:
		return forbidden(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
			"too many pending evictions not confirmed by PDB controller")
	case b.Status.DisruptionsAllowed == 0:
		return tooManyRequests(0, reason(b))
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	// The disruption controller does not count the pod as healthy from now on. It
	// removes the entry after a timeout if the pod is not deleted.
	b.Status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}

// reason returns why a budget allows no disruption.
func reason(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	hasMessage := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case hasMessage && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case hasMessage:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// NotProcessed is the error for an eviction that has to wait until the
// disruption controller has processed the budget.
func NotProcessed(name string) error {
	return tooManyRequests(retryAfter, fmt.Sprintf("The disruption budget %s is still being processed by the server.", name))
}

// forbidden returns the error of a budget whose status is wrong. Kubernetes names the resource
// in the singular here.
func forbidden(name, message, cause string) error {
	err := apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), name, errors.New(message))
	return withCause(err, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", name, cause))
}

func tooManyRequests(retryAfterSeconds int, cause string) error {
	return withCause(apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfterSeconds), cause)
}

// withCause adds the cause by which clients such as kubectl drain know that a budget refuses.
func withCause(err *apierrors.StatusError, cause string) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}
