package horizontalpodautoscaler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// metricsAPI serves discovery, custom and external metrics.
type metricsAPI struct {
	mu sync.Mutex
	// version is the one of custom.metrics.k8s.io that is served.
	version string
	// answers are the responses by path, without the group; those of custom metrics only
	// in the version.
	answers map[string]any
	// requests are those since the last call of asked.
	requests []string
}

// ServeHTTP implements http.Handler.
func (a *metricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	request, _ := url.QueryUnescape(r.URL.RequestURI())
	a.requests = append(a.requests, request)
	custom := metav1.GroupVersionForDiscovery{GroupVersion: "custom.metrics.k8s.io/" + a.version, Version: a.version}
	var answer any
	switch r.URL.Path {
	case "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "custom.metrics.k8s.io", Versions: []metav1.GroupVersionForDiscovery{custom}, PreferredVersion: custom},
		}}
	default:
		path, ok := strings.CutPrefix(r.URL.Path, "/apis/"+custom.GroupVersion)
		if !ok {
			path, ok = strings.CutPrefix(r.URL.Path, "/apis/external.metrics.k8s.io/v1beta1")
		}
		if answer = a.answers[path]; !ok || answer == nil {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "no metric at " + r.URL.Path}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err) // a client that is gone
	}
}

// values is a response with a value for each object, such as "pod-a=2".
func (a *metricsAPI) values(objects ...string) map[string]any {
	items := []any{}
	for _, object := range objects {
		name, value, _ := strings.Cut(object, "=")
		items = append(items, map[string]any{"describedObject": map[string]any{"name": name}, "value": value, "timestamp": "2026-01-01T00:00:00Z"})
	}
	return map[string]any{"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/" + a.version, "items": items}
}

// asked returns the requests since the last call.
func (a *metricsAPI) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.requests = nil }()
	return a.requests
}

// metricsFrom returns metrics that are read from the API, and usage with live.
func metricsFrom(t *testing.T, a *metricsAPI, live client.Reader) (*metrics, *clocktesting.FakePassiveClock) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(networkingv1.SchemeGroupVersion.WithKind("Ingress"), meta.RESTScopeNamespace)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	m, err := metricsOf(&rest.Config{Host: server.URL}, live, mapper, clock, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return m, clock
}

func TestTheVersionOfCustomMetricsIsDiscoveredAgainAfterAnError(t *testing.T) {
	a := &metricsAPI{version: "v1beta1"}
	path := "/namespaces/ns/pods/*/requests"
	a.answers = map[string]any{path: a.values("a=2")}
	m, clock := metricsFrom(t, a, nil)
	read := func(want string) {
		t.Helper()
		samples, err := m.perPod("ns", labels.Everything(), autoscalingv2.MetricIdentifier{Name: "requests"})
		switch got := samples["a"].Value; {
		case want == "" && err == nil:
			t.Errorf("read %d, want an error", got)
		case want != "" && (err != nil || got != 2000):
			t.Errorf("%s: read %d, %v", want, got, err)
		}
	}
	discoveries := func() int {
		return len(slices.DeleteFunc(a.asked(), func(request string) bool { return !strings.HasPrefix(request, "/apis?") }))
	}
	read("the first version")
	read("the first version again")
	if got := discoveries(); got != 1 {
		t.Errorf("%d discoveries, want 1", got)
	}
	a.mu.Lock()
	a.version = "v1beta2"
	a.answers[path] = a.values("a=2")
	a.mu.Unlock()
	read("")
	read("the second version")
	if got := discoveries(); got != 1 {
		t.Errorf("%d discoveries after an error, want 1", got)
	}
	a.mu.Lock()
	delete(a.answers, path)
	a.mu.Unlock()
	read("")
	read("")
	if got := discoveries(); got != 0 {
		t.Errorf("%d discoveries by further errors within the age, want 0", got)
	}
	clock.SetTime(clock.Now().Add(5 * time.Second))
	read("")
	read("")
	if got := discoveries(); got != 1 {
		t.Errorf("%d discoveries by errors after the age, want 1", got)
	}
}
