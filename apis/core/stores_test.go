package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/core/disruptionbudget"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

// store holds one object of a resource type.
type store struct {
	resource.Objects
	obj       runtime.Object
	deleted   bool
	meanwhile func(p *corev1.Pod)
}

type stores map[schema.GroupResource]*store

// newStores holds a pod and, if there is one, a budget.
func newStores(pod *corev1.Pod, budgets ...*policyv1.PodDisruptionBudget) stores {
	s := stores{podResource: {obj: pod}, disruptionbudget.Resource: {}}
	for _, b := range budgets {
		s[disruptionbudget.Resource].obj = b
	}
	return s
}

func (s stores) env() *resource.Env {
	env := resourcetest.Env()
	env.Objects = func(r schema.GroupResource) resource.Objects { return s[r] }
	return env
}

func (s *store) Get(context.Context, string, string) (runtime.Object, error) {
	return s.obj.DeepCopyObject(), nil
}

func (s *store) List(context.Context, string, labels.Selector) ([]runtime.Object, error) {
	return []runtime.Object{s.obj.DeepCopyObject()}, nil
}

func (s *store) Update(_ context.Context, _, _ string, dryRun bool, change func(obj runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	if s.meanwhile != nil {
		s.meanwhile(s.obj.(*corev1.Pod))
		s.obj.(metav1.Object).SetResourceVersion("2")
		s.meanwhile = nil
	}
	obj, err := change(s.obj.DeepCopyObject())
	if err != nil || dryRun {
		return obj, err
	}
	obj.(metav1.Object).SetResourceVersion(s.obj.(metav1.Object).GetResourceVersion() + "1")
	s.obj = obj
	return obj, nil
}

func (s *store) Delete(_ context.Context, _, _ string, options *metav1.DeleteOptions) error {
	if err := checkPreconditions(s.obj.(*corev1.Pod), options.Preconditions); err != nil {
		return apierrors.NewConflict(podResource, "web", err)
	}
	s.deleted = len(options.DryRun) == 0
	return nil
}
