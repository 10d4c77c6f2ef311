package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads PodDisruptionBudgets, their pods and the scale of the pods'
// controllers. It writes the budgets' status; the only other writer is the
// eviction subresource, which takes disruptions from it.
type reconciler struct {
	client client.Client
	events record.EventRecorder
	scales scales
	now    func() time.Time
}

// Reconcile computes the status of a budget. If that fails, the budget allows no
// disruptions, and its condition says why.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	budget := &policyv1.PodDisruptionBudget{}
	if err := r.client.Get(ctx, req.NamespacedName, budget); err != nil || budget.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	requeueAfter, err := r.reconcile(ctx, budget)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
		// The disruptions that were allowed before may be too many now.
		if failure := r.updateStatus(ctx, budget, failedStatus(budget, err, r.now())); failure != nil {
			return reconcile.Result{}, failure
		}
	}
	return reconcile.Result{RequeueAfter: requeueAfter}, err
}

func (r *reconciler) reconcile(ctx context.Context, budget *policyv1.PodDisruptionBudget) (time.Duration, error) {
	pods, err := r.pods(ctx, budget)
	if err != nil {
		return 0, err
	}
	if len(pods) == 0 {
		r.events.Event(budget, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	wanted, err := r.wanted(ctx, budget, pods)
	if err != nil {
		r.events.Eventf(budget, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return 0, err
	}
	now := r.now()
	disrupted := evictions(budget, pods, now)
	for _, pod := range disrupted.expired {
		r.events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
	}
	if err := r.updateStatus(ctx, budget, nextStatus(budget, pods, wanted, disrupted.pending, now)); err != nil {
		return 0, err
	}
	if disrupted.expiry.IsZero() {
		return 0, nil
	}
	return disrupted.expiry.Sub(now), nil
}

// wanted returns the numbers of expected and of healthy pods.
func (r *reconciler) wanted(ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (counts, error) {
	if !dependsOnScale(budget) {
		return expected(budget, int32(len(pods)))
	}
	scale, unmanaged, err := r.scales.sum(ctx, pods)
	if err != nil {
		return counts{}, err
	}
	if len(unmanaged) > 0 {
		r.events.Eventf(budget, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
			"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", budget.Spec.Selector)
	}
	return expected(budget, scale)
}

func (r *reconciler) pods(ctx context.Context, budget *policyv1.PodDisruptionBudget) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		// The API server rejects such a selector.
		r.events.Eventf(budget, corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return nil, err
	}
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(budget.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	// Sorted, so that a failure names the same pod in each sync.
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

func (r *reconciler) updateStatus(ctx context.Context, budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(status, budget.Status) {
		return nil
	}
	updated := budget.DeepCopy()
	updated.Status = status
	if err := r.client.Status().Update(ctx, updated); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("update status of disruption budget %s/%s: %w", budget.Namespace, budget.Name, err)
	}
	return nil
}
