package replicaset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// Each step changes a replica set of two pods or its pods, syncs it, and compares
// the status and whether the replica set is requeued.
func TestWhenTheStatusIsWritten(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		steps []step
	}{
		{"once for created pods, when the cache has them", []step{
			{then: "0 of generation 0, requeued"},
			{then: "2 of generation 1"},
		}},
		{"once for deleted pods, too", []step{
			{then: "0 of generation 0, requeued"},
			{then: "2 of generation 1"},
			{scale: 1, then: "2 of generation 1, requeued"},
			{then: "1 of generation 2"},
		}},
		{"in the second sync at the latest, even if every sync creates pods", []step{
			{then: "0 of generation 0, requeued"},
			{lose: true, then: "0 of generation 1"},
			{lose: true, then: "0 of generation 1"},
		}},
		{"immediately if the creation of pods fails", []step{
			{refuse: true, then: "0 of generation 1, fails"},
		}},
		{"immediately if there are no pods to create or delete", []step{
			{scale: -2, then: "0 of generation 2"},
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			rs := webSet()
			w := newFixture(t, rs)
			for i, s := range tt.steps {
				if got := w.step(t, rs, s); got != s.then {
					t.Fatalf("step %d: %s, want %s", i+1, got, s.then)
				}
			}
		})
	}
}

// step is a change, and the outcome of the sync after it.
type step struct {
	scale  int32 // the new spec.replicas, if not 0; -2 stands for 0
	lose   bool  // delete all pods
	refuse bool  // reject new pods
	then   string
}

type fixture struct {
	reconciler
	refused error
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &fixture{}
	byController := index.ByController(&corev1.Pod{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1.ReplicaSet{}).
		WithIndex(byController.Object, byController.Name, byController.Values).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if w.refused != nil {
					return w.refused
				}
				return c.Create(ctx, obj, opts...)
			},
		}).Build()
	w.reconciler = reconciler{
		kind: replicaSets(), gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), client: c, live: c, now: func() time.Time { return noon },
		pods: pods.Control{Client: c, Recorder: record.NewFakeRecorder(100)},
	}
	return w
}

func webSet() *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

func (w *fixture) step(t *testing.T, rs *appsv1.ReplicaSet, s step) string {
	t.Helper()
	ctx := t.Context()
	if s.lose {
		if err := w.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(rs.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	if s.scale != 0 {
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(rs), rs); err != nil {
			t.Fatal(err)
		}
		rs.Generation++
		rs.Spec.Replicas = ptr.To(max(s.scale, 0))
		if err := w.client.Update(ctx, rs); err != nil {
			t.Fatal(err)
		}
	}
	w.refused = nil
	if s.refuse {
		w.refused = errors.New("refused")
	}
	result, err := w.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rs)})
	var now appsv1.ReplicaSet
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(rs), &now); err != nil {
		t.Fatal(err)
	}
	then := fmt.Sprintf("%d of generation %d", now.Status.Replicas, now.Status.ObservedGeneration)
	if result.RequeueAfter > 0 {
		then += ", requeued"
	}
	if err != nil {
		then += ", fails"
	}
	return then
}
