// Package services finds the services whose endpoints change with a pod.
package services

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// Watch enqueues the services whose endpoints change with a pod. It needs the
// index BySelector.
func Watch(reader client.Reader) controller.Watch[reconcile.Request] {
	type queue = controller.Queue[reconcile.Request]
	on := func(ctx context.Context, before, after any, q queue) {
		for key := range concerned(ctx, reader, endpointsliceutil.GetPodUpdateProjectionKey(before, after)) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.Pod{}, Handler: handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { on(ctx, nil, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { on(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { on(ctx, e.Object, nil, q) },
	}}
}

// concerned returns the services that select a pod, or selected it before it
// changed. It leaves out services that select it before and after if only its
// labels have changed.
func concerned(ctx context.Context, reader client.Reader, change *endpointsliceutil.PodProjectionKey) sets.Set[types.NamespacedName] {
	if change == nil {
		return nil
	}
	now := selecting(ctx, reader, change.Namespace, change.Labels)
	if change.OldLabels == nil {
		return now
	}
	before := selecting(ctx, reader, change.Namespace, change.OldLabels)
	if change.PodChanged {
		return now.Union(before)
	}
	return now.SymmetricDifference(before)
}

// selecting returns the services that select pods with these labels.
func selecting(ctx context.Context, reader client.Reader, namespace string, pod labels.Set) sets.Set[types.NamespacedName] {
	found := sets.Set[types.NamespacedName]{}
	for key, value := range pod {
		var list corev1.ServiceList
		err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{BySelector().Name: pair(key, value)}, client.UnsafeDisableDeepCopy)
		if err != nil {
			// The cache has stopped, because this process is no longer the leader.
			klog.FromContext(ctx).V(2).Info("Failed to list the services of a pod", "reason", err.Error())
			return nil
		}
		for i := range list.Items {
			if service := &list.Items[i]; labels.ValidatedSetSelector(service.Spec.Selector).Matches(pod) {
				found.Insert(client.ObjectKeyFromObject(service))
			}
		}
	}
	return found
}

// BySelector finds services by one label of their selector, so that few of the
// services found by the labels of a pod do not select it.
func BySelector() controller.Index {
	return controller.Index{Name: "selector", Object: &corev1.Service{}, Values: func(obj client.Object) []string {
		selector := obj.(*corev1.Service).Spec.Selector
		if len(selector) == 0 {
			return nil
		}
		// Most services share their last labels (app.kubernetes.io/part-of, tier)
		// more than their first (app, app.kubernetes.io/instance).
		first := slices.Min(slices.Collect(maps.Keys(selector)))
		return []string{pair(first, selector[first])}
	}}
}

func pair(key, value string) string { return key + "=" + value }
