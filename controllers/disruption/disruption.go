// Package disruption keeps the status of PodDisruptionBudgets: how many of their
// pods may be evicted now. The eviction subresource of pods honours it.
package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "disruption",
		Aliases: []string{"disruption-controller"},
		Reads: []client.Object{
			&policyv1.PodDisruptionBudget{}, &corev1.Pod{},
			&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("policy", []string{"poddisruptionbudgets/status"}, []string{"update"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
			// Custom resources control pods, too.
			controller.Can("*", []string{"*/scale"}, []string{"get"}),
		},
		Setup: setup,
	}
}

// workers is how many budgets are calculated at the same time. A budget may
// wait for the API server to tell the scale of a custom resource.
const workers = 4

func setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{
		client: env.Client,
		events: env.Recorder("controllermanager"),
		scales: scales{env.Client},
		now:    env.Clock.Now,
	}
	cached := env.Manager.GetCache()
	err := controller.Run(env, controller.Options{Name: "disruption", Workers: workers}, r,
		controller.For(&policyv1.PodDisruptionBudget{}),
		controller.Map(&corev1.Pod{}, r.budgetsOf(cached), predicate.Funcs{UpdateFunc: podCounts}),
		controller.Map(&appsv1.Deployment{}, r.budgetsIn(cached), scaled()),
		controller.Map(&appsv1.ReplicaSet{}, r.budgetsIn(cached), scaled()),
		controller.Map(&appsv1.StatefulSet{}, r.budgetsIn(cached), scaled()),
		controller.Map(&corev1.ReplicationController{}, r.budgetsIn(cached), scaled()))
	if err != nil {
		return err
	}
	return controller.Run(env, controller.Options{Name: "disruption-target", Workers: 1}, &targets{client: env.Client, now: env.Clock.Now},
		controller.For(&corev1.Pod{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
			return staleSince(obj.(*corev1.Pod)) != nil
		})))
}

// reconciler reads PodDisruptionBudgets, their pods and the scale of what
// controls these; it alone writes the budgets' status, beside the eviction
// subresource, which takes disruptions from it.
type reconciler struct {
	client client.Client
	events record.EventRecorder
	scales scales
	now    func() time.Time
}

// Reconcile calculates the status of a budget. A budget that cannot be
// calculated allows nothing and says why.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	budget := &policyv1.PodDisruptionBudget{}
	if err := r.client.Get(ctx, req.NamespacedName, budget); err != nil || budget.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	again, err := r.reconcile(ctx, budget)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
		// What was allowed before might do harm now.
		if failure := r.write(ctx, budget, failed(budget, err, r.now())); failure != nil {
			return reconcile.Result{}, failure
		}
	}
	return reconcile.Result{RequeueAfter: again}, err
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
	disrupted := disruptions(budget, pods, now)
	for _, pod := range disrupted.spared {
		r.events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
	}
	if err := r.write(ctx, budget, status(budget, pods, wanted, disrupted.pending, now)); err != nil {
		return 0, err
	}
	if disrupted.next.IsZero() {
		return 0, nil
	}
	return disrupted.next.Sub(now), nil
}

// wanted is how many pods there should be, and how many of them healthy.
func (r *reconciler) wanted(ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (counts, error) {
	if !scaleMatters(budget) {
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
		// The API server lets no such selector in.
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
	// In a fixed order: what cannot be calculated is told of the same pod each time.
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

func (r *reconciler) write(ctx context.Context, budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(status, budget.Status) {
		return nil
	}
	updated := budget.DeepCopy()
	updated.Status = status
	if err := r.client.Status().Update(ctx, updated); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("status of disruption budget %s/%s: %w", budget.Namespace, budget.Name, err)
	}
	return nil
}

// budgetsOf are the budgets that select a pod.
func (r *reconciler) budgetsOf(reader client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		requests := requests(ctx, reader, obj.GetNamespace(), func(b *policyv1.PodDisruptionBudget) bool {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err == nil && selector.Matches(labels.Set(obj.GetLabels()))
		})
		if len(requests) > 1 {
			r.events.Eventf(obj, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets", "Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.",
				obj.GetNamespace(), obj.GetName(), requests[0].Name)
		}
		return requests
	}
}

// budgetsIn are the budgets of a namespace that the scale of a workload matters
// to.
func (r *reconciler) budgetsIn(reader client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requests(ctx, reader, obj.GetNamespace(), scaleMatters)
	}
}

func requests(ctx context.Context, reader client.Reader, namespace string, matters func(*policyv1.PodDisruptionBudget) bool) []reconcile.Request {
	var list policyv1.PodDisruptionBudgetList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache ends
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; matters(b) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

// podCounts tells whether a change of a pod may change the status of a budget.
func podCounts(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return before.UID != after.UID || ready(before) != ready(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
}

// scaled passes what may change the scale of a workload, or who owns it.
func scaled() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences())
	}}
}
