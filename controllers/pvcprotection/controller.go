// Package pvcprotection protects persistent volume claims that pods use from
// deletion with a finalizer, and reports since when no pod uses a claim.
package pvcprotection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:         "pvcprotection",
		ReleaseGates: []string{unusedGate},
		Aliases:      []string{"pvc-protection", "persistentvolumeclaim-protection-controller"},
		Reads:        []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.Pod{}},
		Permissions:  []rbacv1.PolicyRule{controller.Can("", []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, []string{"patch"})},
		Setup:        setup,
	}
}

const workers = 4

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, pendingIndex(), index.PodsByClaim()); err != nil {
		return err
	}
	claims := handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[string]) { enqueueClaim(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) { enqueueClaim(q, e.ObjectNew) },
	}
	pods := handler.TypedFuncs[client.Object, string]{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[string]) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID || hasShutDown(after) && !hasShutDown(before) {
				enqueuePod(q, before)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[string]) {
			enqueuePod(q, e.Object.(*corev1.Pod))
		},
	}
	if on, err := env.On(ctx, unusedGate); err != nil {
		return err
	} else if on {
		if err := runUnused(env); err != nil {
			return err
		}
	}
	return controller.Run(env, controller.Options{Name: "pvcprotection", Workers: workers}, &reconciler{client: env.Client, live: env.Live},
		controller.Watch[string]{Object: &corev1.PersistentVolumeClaim{}, Handler: claims},
		controller.Watch[string]{Object: &corev1.Pod{}, Handler: pods})
}

func enqueueClaim(q controller.Queue[string], obj client.Object) {
	if decide(obj.(*corev1.PersistentVolumeClaim)) != keep {
		q.Add(obj.GetNamespace())
	}
}

func enqueuePod(q controller.Queue[string], pod *corev1.Pod) {
	if hasClaims(pod) {
		q.Add(pod.Namespace)
	}
}

// pendingIndex finds the claims whose finalizer may have to be added or removed.
func pendingIndex() controller.Index {
	return controller.Index{Name: "pvc-protection", Object: &corev1.PersistentVolumeClaim{}, Values: func(obj client.Object) []string {
		if decide(obj.(*corev1.PersistentVolumeClaim)) != keep {
			return []string{pending}
		}
		return nil
	}}
}

// pending is the only value of pendingIndex.
const pending = "true"
