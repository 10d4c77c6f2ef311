// Package podgroupprotection keeps PodGroups that are deleted until none of their pods runs any
// more: it removes the finalizer that the admission plugin PodGroupProtection has given them
// (KEP-4671).
package podgroupprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/controller"
)

const (
	name    = "podgroupprotection"
	workers = 1

	// finalizer protects groups from deletion.
	finalizer = "scheduling.k8s.io/podgroup-protection"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"podgroup-protection-controller"},
		Gate:        "GenericWorkload",
		Newer:       true,
		Reads:       []client.Object{&schedulingv1beta1.PodGroup{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("scheduling.k8s.io", []string{"podgroups"}, []string{"patch"})},
		Setup:       setup,
	}
}

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, activePods()); err != nil {
		return err
	}
	deleted := predicate.NewPredicateFuncs(func(obj client.Object) bool { return isReleasable(obj.(*schedulingv1beta1.PodGroup)) })
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, &reconciler{env.Client, env.Live},
		controller.For(&schedulingv1beta1.PodGroup{}, deleted),
		controller.Map(&corev1.Pod{}, func(_ context.Context, obj client.Object) []reconcile.Request { return groupOf(obj.(*corev1.Pod)) }, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				return before.UID != after.UID || isActive(before) && !isActive(after)
			},
		}))
}

// groupOf returns the request for a pod's group, if it has one.
func groupOf(pod *corev1.Pod) []reconcile.Request {
	g := pod.Spec.SchedulingGroup
	if g == nil || g.PodGroupName == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: *g.PodGroupName}}}
}

// isActive reports whether a pod has not ended.
func isActive(pod *corev1.Pod) bool { return !podspec.IsTerminal(pod.Status.Phase) }

// isReleasable reports whether a group only waits for the finalizer to be removed.
func isReleasable(group *schedulingv1beta1.PodGroup) bool {
	return group.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(group, finalizer)
}

// activePods finds the pods of a namespace that have not ended by their group.
func activePods() controller.Index {
	return controller.Index{Name: "active-pods-of-group", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		pod := obj.(*corev1.Pod)
		if requests := groupOf(pod); len(requests) > 0 && isActive(pod) {
			return []string{requests[0].Name}
		}
		return nil
	}}
}

// reconciler reads PodGroups and pods. It alone removes the groups' finalizer.
type reconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile removes the finalizer of a group that is being deleted if no pod of it is active.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	group := &schedulingv1beta1.PodGroup{}
	if err := r.client.Get(ctx, req.NamespacedName, group); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isReleasable(group) {
		return reconcile.Result{}, nil
	}
	used, err := r.used(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("pods of pod group %s: %w", req.NamespacedName, err)
	}
	if used {
		klog.FromContext(ctx).V(4).Info("Keeping pod group that is being deleted while it has pods", "podGroup", klog.KObj(group))
		return reconcile.Result{}, nil
	}
	patch := client.MergeFromWithOptions(group.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(group, finalizer)
	if err := client.IgnoreNotFound(r.client.Patch(ctx, group, patch)); err != nil {
		return reconcile.Result{}, fmt.Errorf("finalizers of pod group %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// used reports whether a pod of a group is active. If the cache has none, the API server is
// asked, as the cache may be older.
func (r *reconciler) used(ctx context.Context, group client.ObjectKey) (bool, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(group.Namespace), client.MatchingFields{activePods().Name: group.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || len(pods.Items) > 0 {
		return len(pods.Items) > 0, err
	}
	if err := r.live.List(ctx, &pods, client.InNamespace(group.Namespace)); err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return slices.Contains(activePods().Values(&pod), group.Name)
	}), nil
}
