package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/yaml"
)

// metrics serves the metrics APIs of one system, with the values that scripts set: a value
// is that of each pod that runs, or of an object.
type metrics struct {
	recorder *recorder

	mu     sync.Mutex
	values map[metricName]resource.Quantity
	// reads are how often the metrics were read since the last step that waits for it.
	reads map[metricName]int
}

// metricName is the name of a metric of a scenario.
type metricName struct{ place, name string }

// load sets the value of a metric; none ends it. It waits until autoscalers have acted on it.
func load(name, value string) step {
	return step{what: "load " + name + " " + value, until: func(s *side) bool { return s.metrics.synced(s.place, name) }, do: func(_ context.Context, s *side) error {
		s.metrics.mu.Lock()
		defer s.metrics.mu.Unlock()
		delete(s.metrics.reads, metricName{s.place, name})
		if value == "none" {
			delete(s.metrics.values, metricName{s.place, name})
			return nil
		}
		q, err := resource.ParseQuantity(value)
		s.metrics.values[metricName{s.place, name}] = q
		return err
	}}
}

// read waits until an autoscaler that was created has read its metric.
func read(name string) step {
	return step{what: "until " + name + " is read", until: func(s *side) bool { return s.metrics.synced(s.place, name) }}
}

// follow is a rollout of what an autoscaler changes, until it changes nothing more: it has read
// the metric after the last change.
func follow(name string) step {
	works := rollout()
	return step{what: works.what, again: true, until: func(s *side) bool { return s.metrics.synced(s.place, name) }, do: func(ctx context.Context, s *side) error {
		err := works.do(ctx, s)
		s.metrics.mu.Lock()
		defer s.metrics.mu.Unlock()
		delete(s.metrics.reads, metricName{s.place, name})
		return err
	}}
}

// synced reports whether an autoscaler has read a metric and acted on it: it reads it again
// when it has.
func (m *metrics) synced(place, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads[metricName{place, name}] > 1
}

func (m *metrics) value(place, name string) (resource.Quantity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[metricName{place, name}]++
	q, ok := m.values[metricName{place, name}]
	return q, ok
}

// serveMetrics registers the metrics APIs at a system.
func (s *system) serveMetrics(t *testing.T) {
	t.Helper()
	s.metrics = &metrics{recorder: s.recorder, values: map[metricName]resource.Quantity{}, reads: map[metricName]int{}}
	server := httptest.NewTLSServer(s.metrics)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := s.typed.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(port)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	services := s.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	for _, gv := range metricsVersions {
		text := fmt.Sprintf(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: %[2]s.%[1]s}, spec: {group: %[1]s, version: %[2]s, groupPriorityMinimum: 100, versionPriority: 100,
			insecureSkipTLSVerify: true, service: {namespace: default, name: metrics, port: %[3]d}}}`, gv.Group, gv.Version, port)
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := services.Apply(ctx, o.GetName(), &o, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		served := func() bool {
			_, err := s.typed.Discovery().ServerResourcesForGroupVersion(gv.String())
			return err == nil
		}
		for began := time.Now(); !served(); {
			if err := pause(ctx); err != nil || time.Since(began) > patience {
				t.Fatalf("%s does not serve %s", s.name, gv)
			}
		}
	}
}

var metricsVersions = []schema.GroupVersion{metricsv1beta1.SchemeGroupVersion, customv1beta2.SchemeGroupVersion, externalv1beta1.SchemeGroupVersion}

// ServeHTTP implements http.Handler.
func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := m.answer(r)
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		answer = apierrors.NewNotFound(schema.GroupResource{Resource: "metrics"}, r.URL.Path).Status()
		w.WriteHeader(http.StatusNotFound)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// answer returns the answer to a request: /apis/GROUP/VERSION and what follows.
func (m *metrics) answer(r *http.Request) (any, bool) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) < 3 {
		return nil, false
	}
	gv := schema.GroupVersion{Group: path[1], Version: path[2]}
	switch path = path[3:]; {
	case len(path) == 0:
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
			APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get"}}},
		}, true
	case len(path) < 3 || path[0] != "namespaces":
		return nil, false
	}
	place, path := path[1], path[2:]
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, false
	}
	switch gv {
	case metricsv1beta1.SchemeGroupVersion:
		return m.usage(place, selector), true
	case externalv1beta1.SchemeGroupVersion:
		value, ok := m.value(place, path[0])
		return externalv1beta1.ExternalMetricValueList{TypeMeta: typeOf("ExternalMetricValueList", gv), Items: []externalv1beta1.ExternalMetricValue{
			{MetricName: path[0], Timestamp: metav1.Now(), Value: value},
		}}, ok
	}
	name := path[len(path)-1]
	value, ok := m.value(place, name)
	of := corev1.ObjectReference{Name: path[0], Namespace: place}
	list := customv1beta2.MetricValueList{TypeMeta: typeOf("MetricValueList", gv)}
	add := func(of corev1.ObjectReference) {
		list.Items = append(list.Items, customv1beta2.MetricValue{DescribedObject: of, Metric: customv1beta2.MetricIdentifier{Name: name}, Timestamp: metav1.Now(), Value: value})
	}
	if path[0] != "pods" {
		add(of)
		return list, ok
	}
	for _, p := range m.running(place, selector) {
		add(corev1.ObjectReference{Kind: "Pod", Name: p.GetName(), Namespace: place})
	}
	return list, ok
}

// usage is the usage of the container of each pod: the metrics cpu and memory.
func (m *metrics) usage(place string, selector labels.Selector) metricsv1beta1.PodMetricsList {
	list := metricsv1beta1.PodMetricsList{TypeMeta: typeOf("PodMetricsList", metricsv1beta1.SchemeGroupVersion), Items: []metricsv1beta1.PodMetrics{}}
	used := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if value, ok := m.value(place, string(name)); ok {
			used[name] = value
		}
	}
	for _, p := range m.running(place, selector) {
		if len(used) > 0 {
			list.Items = append(list.Items, metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: p.GetName(), Namespace: place, Labels: p.GetLabels()}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: time.Second},
				Containers: []metricsv1beta1.ContainerMetrics{{Name: "c", Usage: used}},
			})
		}
	}
	return list
}

// running returns the pods of a scenario that run and match a selector.
func (m *metrics) running(place string, selector labels.Selector) (all []*unstructured.Unstructured) {
	m.recorder.read(place, func(p *record) {
		for _, o := range p.live {
			if o.GetKind() == "Pod" && fieldOf(o, "status.phase") == string(corev1.PodRunning) && o.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(o.GetLabels())) {
				all = append(all, o)
			}
		}
	})
	return all
}

func typeOf(kind string, gv schema.GroupVersion) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: gv.String()}
}
