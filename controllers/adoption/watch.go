package adoption

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// Watch enqueues the controller of an object that changes, if the controller is
// of kind owner: the one before the change, and the one after it. For an orphan
// it enqueues what mayAdopt returns, if the orphan is new or its labels changed.
func Watch(obj client.Object, owner schema.GroupKind, mayAdopt func(ctx context.Context, obj client.Object) []reconcile.Request) controller.Watch[reconcile.Request] {
	return controller.Map(obj, func(ctx context.Context, obj client.Object) []reconcile.Request {
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil {
			return mayAdopt(ctx, obj)
		}
		if group, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || group.Group != owner.Group || ref.Kind != owner.Kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: ref.Name}}}
	}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			orphan := metav1.GetControllerOfNoCopy(e.ObjectNew) == nil && metav1.GetControllerOfNoCopy(e.ObjectOld) == nil
			return !orphan || !maps.Equal(e.ObjectNew.GetLabels(), e.ObjectOld.GetLabels())
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return metav1.GetControllerOfNoCopy(e.Object) != nil },
	})
}

// Matching returns requests for the owners whose selector matches obj. No owner
// adopts an object without labels.
func Matching[T client.Object](owners []T, selector func(T) (labels.Selector, error), obj client.Object) []reconcile.Request {
	if len(obj.GetLabels()) == 0 {
		return nil
	}
	var requests []reconcile.Request
	for _, owner := range owners {
		// An owner whose selector is invalid or empty adopts nothing.
		if s, err := selector(owner); err == nil && !s.Empty() && s.Matches(labels.Set(obj.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
		}
	}
	return requests
}
