package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/core/disruptionbudget"
	"svc.dev/svc/apis/resource"
)

// eviction deletes a pod if the PodDisruptionBudget that selects it allows it.
var eviction = resource.Action{
	Name:  "eviction",
	Input: func() runtime.Object { return &policyv1.Eviction{} },
	// Older clients send policy/v1beta1, which kube-apiserver still accepts here, and takes
	// alone before 1.22.
	InputVersions: []resource.InputVersion{resource.ConvertInput(
		func(in *policyv1beta1.Eviction, out *policyv1.Eviction) { *out = policyv1.Eviction(*in) },
		func(in *policyv1.Eviction, out *policyv1beta1.Eviction) { *out = policyv1beta1.Eviction(*in) },
	)},
	Run: evict,
}

// maxEvictionAttempts bounds how often an eviction is decided again because the
// pod has changed since it was read.
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

// evictionOptions returns the options of the deletion, from the body. A dry run
// may be requested in the URL or in the body.
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

// evictOnce tries the eviction once. With an error, changed reports whether the
// only reason is that the pod has changed since it was read.
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
	decision, err := disruptionbudget.Decide(pod, budgets)
	if err != nil {
		return false, err
	}
	if decision.Take {
		_, err := env.Objects(disruptionbudget.Resource).Update(ctx, req.Namespace, decision.Budget.Name, len(options.DryRun) > 0, func(obj runtime.Object) (runtime.Object, error) {
			return obj, disruptionbudget.Take(obj.(*policyv1.PodDisruptionBudget), req.Name, env.Clock.Now())
		})
		if err != nil {
			return false, err
		}
	}
	given := requiresVersion(options)
	// Every version of a pod meets an empty one. For a pod without a budget it counts
	// as the client's, as in kube-apiserver.
	if decision.SameVersion && (!given || decision.Budget != nil && *options.Preconditions.ResourceVersion == "") {
		options = withVersion(options, pod.ResourceVersion)
	}
	err = deleteEvicted(ctx, env, req, options)
	if decision.SameVersion && !given && apierrors.IsConflict(err) {
		if decision.Budget != nil {
			// The unready pod may have become ready, which the budget's status does
			// not show yet.
			return false, disruptionbudget.NotProcessed(decision.Budget.Name)
		}
		return true, err
	}
	return false, err
}

// requiresVersion reports whether the resource version is a precondition.
func requiresVersion(options *metav1.DeleteOptions) bool {
	return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
}

// withVersion returns a copy of the options with the resource version as a
// precondition.
func withVersion(options *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = &version
	return options
}

// budgetsOf returns the disruption budgets of the namespace.
func budgetsOf(ctx context.Context, env *resource.Env, namespace string) ([]*policyv1.PodDisruptionBudget, error) {
	found, err := env.Objects(disruptionbudget.Resource).List(ctx, namespace, labels.Everything())
	if err != nil {
		return nil, err
	}
	budgets := make([]*policyv1.PodDisruptionBudget, 0, len(found))
	for _, obj := range found {
		budgets = append(budgets, obj.(*policyv1.PodDisruptionBudget))
	}
	return budgets, nil
}

// deleteEvicted adds the condition DisruptionTarget to the pod, by which
// controllers distinguish evictions from failures (KEP-3329), and deletes it.
func deleteEvicted(ctx context.Context, env *resource.Env, req resource.ActionRequest, options *metav1.DeleteOptions) error {
	if len(options.DryRun) == 0 {
		updated, err := env.Objects(podResource).Update(ctx, req.Namespace, req.Name, false, func(obj runtime.Object) (runtime.Object, error) {
			pod := obj.(*corev1.Pod)
			if err := checkPreconditions(pod, options.Preconditions); err != nil {
				return nil, apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name, err)
			}
			setPodCondition(pod, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			}, env.Clock.Now())
			return pod, nil
		})
		if err != nil {
			return err
		}
		if requiresVersion(options) {
			options = withVersion(options, updated.(*corev1.Pod).ResourceVersion)
		}
	}
	return env.Objects(podResource).Delete(ctx, req.Namespace, req.Name, options.DeepCopy())
}

// checkPreconditions returns an error if the pod does not meet the
// preconditions of its deletion. As in kube-apiserver's eviction, whose messages
// these are, an empty precondition is none; in storage.Preconditions it is one
// that no object meets.
func checkPreconditions(pod *corev1.Pod, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != "" && *p.UID != pod.UID:
		return fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID)
	case p.ResourceVersion != nil && *p.ResourceVersion != "" && *p.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion)
	}
	return nil
}
