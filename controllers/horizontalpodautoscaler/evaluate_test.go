package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// usageAPI serves metrics.k8s.io from objects, and counts the lists.
type usageAPI struct {
	client.Reader
	lists int
	err   error
}

func newUsageAPI(t *testing.T, objects ...client.Object) *usageAPI {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metricsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	a := &usageAPI{}
	a.Reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			a.lists++
			if a.err != nil {
				return a.err
			}
			return w.List(ctx, list, opts...)
		},
	}).Build()
	return a
}

// usageOf is the usage of a pod, by containers such as "main cpu=100m".
func usageOf(namespace, name string, containers ...string) *metricsv1beta1.PodMetrics {
	u := &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Window: metav1.Duration{Duration: time.Minute}}
	for _, text := range containers {
		container, used, _ := strings.Cut(text, " ")
		r, quantity, _ := strings.Cut(used, "=")
		u.Containers = append(u.Containers, metricsv1beta1.ContainerMetrics{Name: container, Usage: corev1.ResourceList{corev1.ResourceName(r): resource.MustParse(quantity)}})
	}
	return u
}

func podsOf(names ...string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}}}}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Unix(1e8, 0)}, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1e8, 0)},
		}}
		pods = append(pods, pod)
	}
	return pods
}

func TestUsageIsThatOfAllContainersOrOne(t *testing.T) {
	live := newUsageAPI(t, usageOf("ns", "a", "main cpu=100m", "sidecar cpu=50m"), usageOf("ns", "b", "main cpu=200m"), usageOf("ns", "c", "main cpu=1", "sidecar memory=1Mi"))
	m, _ := metricsFrom(t, &metricsAPI{}, live)
	for _, test := range []struct {
		rule, container string
		pods            []string
		want            string
	}{
		{"all containers", "", []string{"a", "b"}, "a=150 b=200"},
		{"one container", "main", []string{"a", "b"}, "a=100 b=200"},
		{"a pod of which the usage of a container is unknown is left out", "", []string{"b", "c"}, "b=200"},
		{"as is a pod without usage", "", []string{"b", "d"}, "b=200"},
		{"a pod without the container is left out", "sidecar", []string{"a", "b"}, "a=50"},
		{"no usage", "", []string{"d"}, "error: no metrics returned from resource metrics API"},
	} {
		samples, err := m.resource(t.Context(), "ns", podsOf(test.pods...), corev1.ResourceCPU, test.container)
		var got []string
		for name, sample := range samples {
			got = append(got, fmt.Sprintf("%s=%d", name, sample.Value))
		}
		slices.Sort(got)
		if err != nil {
			got = []string{"error: " + err.Error()}
		}
		if joined := strings.Join(got, " "); joined != test.want {
			t.Errorf("%s: got %q, want %q", test.rule, joined, test.want)
		}
	}
	if live.lists != 1 {
		t.Errorf("%d lists, want one for all autoscalers", live.lists)
	}
}

func TestUsageIsReadAgainAfterItsAge(t *testing.T) {
	live := newUsageAPI(t, usageOf("ns", "a", "main cpu=100m"), usageOf("other", "a", "main cpu=200m"))
	m, clock := metricsFrom(t, &metricsAPI{}, live)
	read := func(rule, namespace string, want int64, lists int) {
		t.Helper()
		live.lists = 0
		samples, err := m.resource(t.Context(), namespace, podsOf("a"), corev1.ResourceCPU, "")
		if err != nil || samples["a"].Value != want || live.lists != lists {
			t.Errorf("%s: read %d with %d lists, %v; want %d with %d", rule, samples["a"].Value, live.lists, err, want, lists)
		}
	}
	read("first", "ns", 100, 1)
	read("another namespace", "other", 200, 1)
	clock.SetTime(clock.Now().Add(4 * time.Second))
	read("within the age", "ns", 100, 0)
	clock.SetTime(clock.Now().Add(time.Second))
	read("after the age", "ns", 100, 1)
	m.forget("ns")
	read("after the last autoscaler of the namespace", "ns", 100, 1)
}

// evaluation is a metric, the answer of its API, and what it proposes.
type evaluation struct {
	rule   string
	spec   autoscalingv2.MetricSpec
	path   string
	answer any
	// want is the proposal or the error, and asked the last request.
	want, asked string
}

func identifier(name string, selector map[string]string) autoscalingv2.MetricIdentifier {
	m := autoscalingv2.MetricIdentifier{Name: name}
	if selector != nil {
		m.Selector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return m
}

func average(value string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse(value))}
}

func podsMetric(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: identifier("requests", map[string]string{"path": "x"}), Target: target,
	}}
}

func objectMetric(apiVersion, kind, name string, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
		Metric: identifier("hits", nil), DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}, Target: target,
	}}
}

func externalMetric(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: identifier("queue", map[string]string{"name": "jobs"}), Target: target,
	}}
}

func cpuMetric(container string, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	if container == "" {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target}}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceCPU, Container: container, Target: target}}
}

func evaluations(a *metricsAPI) []evaluation {
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("10"))}
	utilization := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(50))}
	mistyped := func(target autoscalingv2.MetricTarget, kind autoscalingv2.MetricTargetType) autoscalingv2.MetricTarget {
		target.Type = kind
		return target
	}
	external := func(values ...string) any {
		items := []any{}
		for _, v := range values {
			items = append(items, map[string]any{"metricName": "queue", "value": v, "timestamp": "2026-01-01T00:00:00Z"})
		}
		return map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": items}
	}
	const pods, ingress, queue = "/namespaces/ns/pods/*/requests", "/namespaces/ns/ingresses.networking.k8s.io/web/hits", "/namespaces/ns/queue"
	web := objectMetric("networking.k8s.io/v1", "Ingress", "web", value)
	return []evaluation{
		{"a custom metric of pods", podsMetric(average("100")), pods, a.values("a=300", "b=100"), "pods metric requests: 4 replicas, usage 200", "pods/*/requests?labelSelector=app=web&metricLabelSelector=path=x"},
		{"without values", podsMetric(average("100")), pods, a.values(), "FailedGetPodsMetric: unable to get metric requests: no metrics returned from custom metrics API", ""},
		{"without a target", podsMetric(value), pods, nil, "FailedGetPodsMetric: invalid pods metric source: target.averageValue is not set", ""},
		{"a metric of an object", web, ingress, a.values("web=50"), "Ingress metric hits: 10 replicas, usage 50", "ingresses.networking.k8s.io/web/hits"},
		{"that has none", web, ingress, nil, "FailedGetObjectMetric: unable to get metric hits: unable to fetch metrics from custom metrics API: ", ""},
		{"that has several", web, ingress, a.values("web=50", "web=60"), "FailedGetObjectMetric: unable to get metric hits: unable to fetch metrics from custom metrics API: the custom metrics API server returned 2 results", ""},
		{"a metric of the autoscaler's namespace", objectMetric("v1", "Namespace", "other", average("10")), "/namespaces/ns/metrics/hits", a.values("ns=50"), "Namespace metric hits: 5 replicas, usage 25", "namespaces/ns/metrics/hits"},
		{"whose target has another type", objectMetric("v1", "Namespace", "other", mistyped(average("10"), autoscalingv2.ValueMetricType)), "/namespaces/ns/metrics/hits", a.values("ns=50"), "FailedGetObjectMetric: invalid metric source: neither a value target nor an average value target was set", ""},
		{"the sum of an external metric", externalMetric(average("10")), queue, external("30", "20500m"), "external metric queue: 6 replicas, usage 25250m", "queue?labelSelector=name=jobs"},
		{"whose average value has another type", externalMetric(mistyped(average("10"), autoscalingv2.ValueMetricType)), queue, external("50"), "external metric queue: 5 replicas, usage 25", ""},
		{"whose value has another type", externalMetric(mistyped(value, autoscalingv2.UtilizationMetricType)), queue, external("50"), "external metric queue: 10 replicas, usage 50", ""},
		{"that is more than any number", externalMetric(average("10")), queue, external("9e15", "9e15"), "external metric queue: 2147483647 replicas, usage 4611686018427387904m", ""},
		{"without values", externalMetric(value), queue, external(), "FailedGetExternalMetric: unable to get external metric ns/queue/", ""},
		{"without a target", externalMetric(autoscalingv2.MetricTarget{}), queue, external("1"), "FailedGetExternalMetric: invalid metric source: neither a value target nor an average value target was set", ""},
		{"the utilization of pods", cpuMetric("", utilization), "", nil, "cpu resource utilization (percentage of request): 4 replicas, usage 200m", ""},
		{"the average usage of pods", cpuMetric("", average("100m")), "", nil, "cpu resource: 4 replicas, usage 200m", ""},
		{"the usage of a container", cpuMetric("main", average("100m")), "", nil, "cpu container resource: 2 replicas, usage 100m", ""},
		{"of one that does not exist", cpuMetric("x", average("100m")), "", nil, "FailedGetContainerResourceMetric: failed to get cpu usage: did not receive metrics for targeted pods (pods might be unready)", ""},
		{"without a target", cpuMetric("", autoscalingv2.MetricTarget{}), "", nil, "FailedGetResourceMetric: invalid resource metric source: neither an average utilization target nor an average value (usage) target was set", ""},
		{"an unknown type", autoscalingv2.MetricSpec{Type: "X"}, "", nil, `InvalidMetricSourceType: unknown metric source type "X"`, ""},
	}
}

func TestEvaluate(t *testing.T) {
	a := &metricsAPI{version: "v1beta2"}
	live := newUsageAPI(t, usageOf("ns", "a", "main cpu=100m", "sidecar cpu=100m"), usageOf("ns", "b", "main cpu=100m", "sidecar cpu=100m"))
	m, clock := metricsFrom(t, a, live)
	e := &evaluator{
		metrics: m, selector: labels.SelectorFromSet(labels.Set{"app": "web"}), namespace: "ns",
		target: &decide.Target{Replicas: 2, Status: 2, Pods: podsOf("a", "b"), Now: clock.Now(), Settings: decide.Settings{Tolerance: 0.1}},
	}
	evaluate := func(spec autoscalingv2.MetricSpec) string {
		metric, status := e.evaluate(t.Context(), &spec)
		if status.Type != spec.Type {
			t.Errorf("the status has the type %q, want %q", status.Type, spec.Type)
		}
		if metric.Err != nil {
			return metric.Failure + ": " + metric.Err.Error()
		}
		return fmt.Sprintf("%s: %d replicas, usage %s", metric.Name, metric.Proposal.Replicas, milli(metric.Proposal.Usage))
	}
	for _, test := range evaluations(a) {
		t.Run(test.rule, func(t *testing.T) {
			a.mu.Lock()
			a.answers = map[string]any{test.path: test.answer}
			a.mu.Unlock()
			got, failed := evaluate(test.spec), strings.HasPrefix(test.want, "Failed")
			if got != test.want && !(failed && strings.HasPrefix(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if asked := strings.Join(a.asked(), "\n"); test.asked != "" && !strings.HasSuffix(asked, "/"+test.asked) {
				t.Errorf("asked %q, want %q", asked, test.asked)
			}
		})
	}
	m.forget("ns")
	live.err = errors.New("no server")
	const want = "FailedGetResourceMetric: failed to get cpu usage: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: no server"
	if got := evaluate(cpuMetric("", average("1"))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
