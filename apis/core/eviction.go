package core

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var budgetResource = policyv1.Resource("poddisruptionbudgets")

// eviction deletes a pod if the PodDisruptionBudget that selects it allows it.
var eviction = resource.Action{
	Name:  "eviction",
	Input: func() runtime.Object { return &policyv1.Eviction{} },
	// Kubernetes has gone on taking the version before, which older clients send.
	InputVersions: []resource.InputVersion{resource.ConvertInput(func(in *policyv1beta1.Eviction, out *policyv1.Eviction) {
		*out = policyv1.Eviction(*in)
	})},
	Run: evict,
}

// evictionVerdict is how a pod may be evicted.
type evictionVerdict struct {
	// Budget is the one that selects the pod, nil if none does or none counts.
	Budget *policyv1.PodDisruptionBudget
	// Charge takes one disruption from Budget before the pod is deleted.
	Charge bool
	// Exactly deletes the pod only as it was judged: a pod that has become
	// ready since must be judged again.
	Exactly bool
}

// judgeEviction decides how the pod may be evicted, given the budgets of its
// namespace. A pod that does not run, or ends already, disrupts nothing; an
// unready one counts in no budget, and goes as the budget's policy says.
func judgeEviction(pod *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (evictionVerdict, error) {
	if podspec.IsTerminal(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return evictionVerdict{}, nil
	}
	if pod.Status.Phase == corev1.PodPending {
		return evictionVerdict{Exactly: true}, nil
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
		return evictionVerdict{}, nil
	case 1:
	default:
		return evictionVerdict{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	budget := selecting[0]
	if !podConditionIs(pod, corev1.PodReady, corev1.ConditionTrue) && unreadyMayGo(budget) {
		return evictionVerdict{Budget: budget, Exactly: true}, nil
	}
	return evictionVerdict{Budget: budget, Charge: true}, nil
}

// unreadyMayGo reports whether a budget lets unready pods be evicted freely: by
// its policy, or because enough others are healthy.
func unreadyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// maxDisruptedPods bounds the evictions that the budget's controller has not
// yet seen through.
const maxDisruptedPods = 2000

// evictionRetrySeconds is when to try again with a budget whose controller has
// work to do.
const evictionRetrySeconds = 10

// chargeBudget takes a disruption for the pod from the budget, or says why it
// cannot.
func chargeBudget(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return budgetInProgress(b.Name)
	case b.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(budgetResource, b.Name, fmt.Errorf("pdb disruptions allowed is negative"))
	case len(b.Status.DisruptedPods) > maxDisruptedPods:
		return apierrors.NewForbidden(budgetResource, b.Name, fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case b.Status.DisruptionsAllowed == 0:
		return tooManyEvictions(0, refusal(b))
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	// The controller must not count the pod as available from now on. It
	// forgets the entry if the pod is not deleted after all.
	b.Status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}

// refusal says why a budget allows no disruption.
func refusal(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case explained && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

func budgetInProgress(name string) error {
	return tooManyEvictions(evictionRetrySeconds, fmt.Sprintf("The disruption budget %s is still being processed by the server.", name))
}

func tooManyEvictions(retrySeconds int, cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retrySeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// maxEvictionAttempts bounds how often a pod is validated again because it changed
// meanwhile.
const maxEvictionAttempts = 20

func evict(ctx context.Context, env *resource.Env, req resource.ActionRequest) (runtime.Object, error) {
	options, err := evictionOptions(req)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		changed, err := evictOnce(ctx, env, req, options)
		if err == nil {
			return &metav1.Status{Status: metav1.StatusSuccess}, nil
		}
		if !changed || attempt == maxEvictionAttempts || ctx.Err() != nil {
			return nil, err
		}
	}
}

// evictionOptions are the body's options of deletion; a dry run may be asked
// for in the URL or in the body.
func evictionOptions(req resource.ActionRequest) (*metav1.DeleteOptions, error) {
	options := req.Input.(*policyv1.Eviction).DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), req.Name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option"),
		})
	}
	if req.DryRun && len(options.DryRun) == 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options, nil
}

// evictOnce reports, with an error, whether that is only because the pod
// changed after it was judged.
func evictOnce(ctx context.Context, env *resource.Env, req resource.ActionRequest, options *metav1.DeleteOptions) (changed bool, err error) {
	found, err := env.Objects(podResource).Get(ctx, req.Namespace, req.Name)
	if err != nil {
		return false, err
	}
	pod := found.(*corev1.Pod)
	budgets, err := budgetsOf(ctx, env, req.Namespace)
	if err != nil {
		return false, err
	}
	verdict, err := judgeEviction(pod, budgets)
	if err != nil {
		return false, err
	}
	if verdict.Charge {
		_, err := env.Objects(budgetResource).Update(ctx, req.Namespace, verdict.Budget.Name, len(options.DryRun) > 0, func(obj runtime.Object) (runtime.Object, error) {
			return obj, chargeBudget(obj.(*policyv1.PodDisruptionBudget), req.Name, time.Now())
		})
		if err != nil {
			return false, err
		}
	}
	pinned := verdict.Exactly && !pinsVersion(options)
	if pinned {
		options = pin(options, pod.ResourceVersion)
	}
	err = deleteEvicted(ctx, env, req, options)
	if pinned && apierrors.IsConflict(err) {
		if verdict.Budget != nil {
			// The unready pod may have become ready.
			return false, budgetInProgress(verdict.Budget.Name)
		}
		return true, err
	}
	return false, err
}

func pinsVersion(options *metav1.DeleteOptions) bool {
	return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
}

// pin makes the version a precondition.
func pin(options *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = &version
	return options
}

func budgetsOf(ctx context.Context, env *resource.Env, namespace string) ([]*policyv1.PodDisruptionBudget, error) {
	found, err := env.Objects(budgetResource).List(ctx, namespace, labels.Everything())
	if err != nil {
		return nil, err
	}
	budgets := make([]*policyv1.PodDisruptionBudget, 0, len(found))
	for _, obj := range found {
		budgets = append(budgets, obj.(*policyv1.PodDisruptionBudget))
	}
	return budgets, nil
}

// deleteEvicted deletes the pod, and notes on it why: controllers tell
// evictions from failures by that condition.
func deleteEvicted(ctx context.Context, env *resource.Env, req resource.ActionRequest, options *metav1.DeleteOptions) error {
	if len(options.DryRun) == 0 {
		updated, err := env.Objects(podResource).Update(ctx, req.Namespace, req.Name, false, func(obj runtime.Object) (runtime.Object, error) {
			pod := obj.(*corev1.Pod)
			if err := fulfils(pod, options.Preconditions); err != nil {
				return nil, apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name, err)
			}
			setPodCondition(pod, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return pod, nil
		})
		if err != nil {
			return err
		}
		if pinsVersion(options) {
			options = pin(options, updated.(*corev1.Pod).ResourceVersion)
		}
	}
	return env.Objects(podResource).Delete(ctx, req.Namespace, req.Name, options.DeepCopy())
}

func fulfils(pod *corev1.Pod, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != "" && *p.UID != pod.UID:
		return fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID)
	case p.ResourceVersion != nil && *p.ResourceVersion != "" && *p.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion)
	}
	return nil
}
