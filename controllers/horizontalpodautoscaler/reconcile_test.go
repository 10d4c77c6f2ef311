package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// autoscaled is an autoscaler of a target with pods, by a queue and the hits of a service.
type autoscaled struct {
	t        *testing.T
	api      *metricsAPI
	clock    *clocktesting.FakePassiveClock
	r        *reconciler
	hpa      *autoscalingv2.HorizontalPodAutoscaler
	replicas int64
	// before, if set, is called before each write of the "status" or the "scale", and may
	// refuse it.
	before func(of string) error
}

func newAutoscaled(t *testing.T, marksZero bool) *autoscaled {
	t.Helper()
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("10"))}
	a := &autoscaled{t: t, replicas: 2, api: &metricsAPI{version: "v1beta2"}, hpa: &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To(int32(0)), MaxReplicas: 20,
			Metrics: []autoscalingv2.MetricSpec{objectMetric("networking.k8s.io/v1", "Ingress", "web", value), externalMetric(value)},
		},
	}}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(mapper).WithObjects(a.hpa).WithStatusSubresource(a.hpa).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, _, sub client.Object, _ ...client.SubResourceGetOption) error {
			sub.(*unstructured.Unstructured).Object = map[string]any{
				"spec": map[string]any{"replicas": a.replicas}, "status": map[string]any{"replicas": a.replicas, "selector": "app=web"},
			}
			return nil
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, of string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if a.before != nil {
				if err := a.before(of); err != nil {
					return err
				}
			}
			if of == "status" {
				return c.SubResource(of).Update(ctx, obj, opts...)
			}
			o := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
			var err error
			a.replicas, _, err = unstructured.NestedInt64(o.SubResourceBody.(*unstructured.Unstructured).Object, "spec", "replicas")
			return err
		},
	}).Build()
	m, clock := metricsFrom(t, a.api, newUsageAPI(t))
	a.clock = clock
	a.r = &reconciler{
		client: c, scales: scales{c}, metrics: m, recorder: record.NewFakeRecorder(1000), period: 15 * time.Second, now: clock.Now,
		targets: newTargets(), marksZero: marksZero,
	}
	a.measured("20", "20")
	a.sync("as many as are needed", 2, "")
	return a
}

// measured sets the values of the metrics: an empty one is not available.
func (a *autoscaled) measured(hits, queue string) {
	a.api.mu.Lock()
	defer a.api.mu.Unlock()
	a.api.answers = map[string]any{}
	if hits != "" {
		a.api.answers["/namespaces/ns/ingresses.networking.k8s.io/web/hits"] = a.api.values("web=" + hits)
	}
	if queue != "" {
		a.api.answers["/namespaces/ns/queue"] = map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": []any{
			map[string]any{"metricName": "queue", "value": queue, "timestamp": "2026-01-01T00:00:00Z"},
		}}
	}
}

// reconcile syncs the autoscaler a minute later.
func (a *autoscaled) reconcile() error {
	a.clock.SetTime(a.clock.Now().Add(time.Minute))
	_, err := a.r.Reconcile(a.t.Context(), reconcile.Request{NamespacedName: key(a.hpa)})
	return err
}

// conflicts syncs the autoscaler, which meets a conflict.
func (a *autoscaled) conflicts() {
	a.t.Helper()
	if err := a.reconcile(); !apierrors.IsConflict(err) {
		a.t.Fatalf("got %v, want a conflict", err)
	}
}

// annotate is a write of the autoscaler by another client.
func (a *autoscaled) annotate() error {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := a.r.client.Get(a.t.Context(), key(a.hpa), hpa); err != nil {
		return err
	}
	hpa.Annotations = map[string]string{"at": a.clock.Now().String()}
	return a.r.client.Update(a.t.Context(), hpa)
}

// sync syncs the autoscaler a minute later, and compares the replicas and the condition
// ScaledToZero.
func (a *autoscaled) sync(what string, replicas int64, zero string) {
	a.t.Helper()
	if err := a.reconcile(); err != nil {
		a.t.Fatal(err)
	}
	if err := a.r.client.Get(a.t.Context(), key(a.hpa), a.hpa); err != nil {
		a.t.Fatal(err)
	}
	got := ""
	for _, c := range a.hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScaledToZero {
			got = string(c.Status)
		}
	}
	if a.replicas != replicas || got != zero {
		a.t.Errorf("%s: %d replicas, ScaledToZero %q; want %d, %q", what, a.replicas, got, replicas, zero)
	}
}

// atLeast changes minReplicas.
func (a *autoscaled) atLeast(n int32) {
	a.t.Helper()
	a.hpa.Spec.MinReplicas = &n
	if err := a.r.client.Update(a.t.Context(), a.hpa); err != nil {
		a.t.Fatal(err)
	}
}

func TestWhatAUserScalesToZeroStaysSo(t *testing.T) {
	a := newAutoscaled(t, true)
	a.measured("0", "0")
	a.sync("nothing to do", 0, "True")
	a.measured("0", "35")
	a.sync("work", 4, "False")
	a.replicas = 0
	a.sync("a user has scaled to zero", 0, "False")
	a.atLeast(1)
	a.sync("whatever the least is", 0, "False")
	a.replicas = 3
	a.measured("0", "0")
	a.sync("the user has scaled up", 1, "False")
	a.atLeast(0)
	a.sync("nothing to do", 0, "True")
	a.atLeast(6)
	a.sync("the least is not zero any more", 6, "False")
}

func TestTheMarkOfZeroIsNotLostInAConflict(t *testing.T) {
	for _, conflicting := range []int{1, 2} {
		t.Run(fmt.Sprint("status write ", conflicting), func(t *testing.T) {
			a := newAutoscaled(t, true)
			a.measured("0", "0")
			writes := 0
			a.before = func(of string) error {
				if of != "status" {
					return nil
				}
				if writes++; writes == conflicting {
					return a.annotate()
				}
				return nil
			}
			a.conflicts()
			a.sync("nothing to do", 0, "True")
			a.measured("0", "35")
			a.sync("work", 4, "False")
		})
	}
}

func TestTheMarkOfZeroIsForTheOwnScaleOnly(t *testing.T) {
	a := newAutoscaled(t, true)
	a.measured("0", "0")
	a.sync("nothing to do", 0, "True")
	a.replicas = 2
	a.measured("20", "20")
	a.sync("a user has scaled up to what is needed", 2, "False")
	a.measured("0", "0")
	a.before = func(of string) error {
		if of != "scale" {
			return nil
		}
		a.before, a.replicas = nil, 0
		return apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("changed"))
	}
	a.conflicts()
	a.sync("a user has scaled to zero at the same time", 0, "False")
	a.measured("0", "35")
	a.sync("work", 0, "False")
}

func TestBeforeTheConditionZeroIsANumberAsOthers(t *testing.T) {
	a := newAutoscaled(t, false)
	a.measured("0", "0")
	a.sync("nothing to do", 0, "")
	a.measured("0", "35")
	a.sync("work", 4, "")
	a.replicas = 0
	a.sync("a user has scaled to zero", 4, "")
	a.replicas = 0
	a.hpa.Status.Conditions = append(a.hpa.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: autoscalingv2.ScaledToZero, Status: "True"})
	if err := a.r.client.Status().Update(t.Context(), a.hpa); err != nil {
		t.Fatal(err)
	}
	a.atLeast(1)
	a.sync("with a least number, it stays so", 0, "")
}

func TestTheObservedGenerationIsWrittenIfItsGateIsOn(t *testing.T) {
	a := newAutoscaled(t, true)
	a.hpa.Generation = 7
	a.atLeast(1)
	for _, test := range []struct {
		on   bool
		want *int64
	}{{false, nil}, {true, ptr.To(int64(7))}, {false, nil}} {
		a.r.observes = test.on
		a.sync("as many as are needed", 2, "")
		if got := a.hpa.Status.ObservedGeneration; !ptr.Equal(got, test.want) {
			t.Errorf("with the gate %t: observedGeneration %v, want %v", test.on, got, test.want)
		}
	}
}

// TestTheStatusOfAMetricHasItsPosition checks what kubectl relies on: it finds the current
// value of a metric by its position.
func TestTheStatusOfAMetricHasItsPosition(t *testing.T) {
	a := newAutoscaled(t, false)
	expect := func(want string) {
		t.Helper()
		var got []string
		for _, m := range a.hpa.Status.CurrentMetrics {
			got = append(got, fmt.Sprintf("%q", m.Type))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("metrics %s, want %s", text, want)
		}
	}
	a.measured("", "35")
	a.sync("the first metric is not available", 4, "")
	expect(`"" "External"`)
	a.measured("35", "")
	a.sync("the second one is not", 4, "")
	expect(`"Object" ""`)
	a.replicas = 30
	a.sync("more than the most", 20, "")
	expect("")
}
