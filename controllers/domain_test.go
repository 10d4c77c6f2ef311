package controllers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/serviceaccount"
)

// TestControllersWorkInAnotherGroupDomain runs a manager, with its election and
// a controller, against a server that has the kinds under the domain svc.dev.
func TestControllersWorkInAnotherGroupDomain(t *testing.T) {
	scheme := runtime.NewScheme()
	for group, kinds := range map[string][]runtime.Object{
		"core.svc.dev":         {&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}, &corev1.Event{}, &corev1.EventList{}},
		"coordination.svc.dev": {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
	} {
		gv := schema.GroupVersion{Group: group, Version: "v1"}
		scheme.AddKnownTypes(gv, kinds...)
		metav1.AddToGroupVersion(scheme, gv)
	}
	s := &foreignServer{written: map[string]map[string]any{}}
	near := httptest.NewServer(s)
	defer near.Close()

	o := NewOptions()
	o.all = []controller.Controller{serviceaccount.New()}
	m, err := New(Config{Options: o, API: &rest.Config{Host: near.URL}, Holder: "me", Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	want := []string{
		"POST /apis/coordination.svc.dev/v1/namespaces/kube-system/leases",
		"POST /apis/core.svc.dev/v1/namespaces/kube-system/events",
		"POST /apis/core.svc.dev/v1/namespaces/red/serviceaccounts",
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return slices.Equal(s.requests("POST"), want), nil
	}); err != nil {
		t.Fatalf("%v: got %q, want %q", err, s.requests("POST"), want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := s.requests("PUT"); !slices.Equal(got, []string{"PUT /apis/coordination.svc.dev/v1/namespaces/kube-system/leases/kube-controller-manager"}) {
		t.Errorf("the lease was not given back: %q", got)
	}
}

// foreignServer serves the group domain svc.dev, as far as the test needs it:
// it has one namespace, and keeps what it is given.
type foreignServer struct {
	mu      sync.Mutex
	written map[string]map[string]any // by method and path
}

func (s *foreignServer) requests(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []string
	for request := range s.written {
		if strings.HasPrefix(request, method+" ") {
			requests = append(requests, request)
		}
	}
	slices.Sort(requests)
	return requests
}

func (s *foreignServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the client notices
	}
	if r.Method != http.MethodGet {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			answer(http.StatusBadRequest, metav1.Status{Message: err.Error()})
			return
		}
		body["metadata"].(map[string]any)["resourceVersion"] = "20"
		s.mu.Lock()
		s.written[r.Method+" "+r.URL.Path] = body
		s.mu.Unlock()
		answer(http.StatusCreated, body)
		return
	}
	if r.URL.Query().Get("sendInitialEvents") != "" {
		answer(http.StatusUnprocessableEntity, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	if body, ok := foreign()[r.URL.Path]; ok {
		answer(http.StatusOK, body)
		return
	}
	answer(http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
}

// foreign is what the server answers to GET, by path.
func foreign() map[string]any {
	version := func(group string) metav1.APIGroup {
		v := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		return metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
	}
	resources := func(group string, resources ...metav1.APIResource) metav1.APIResourceList {
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/v1", APIResources: resources}
	}
	list := func(kind string, items ...any) map[string]any {
		return map[string]any{"kind": kind, "apiVersion": "core.svc.dev/v1", "metadata": map[string]any{"resourceVersion": "10"}, "items": append([]any{}, items...)}
	}
	return map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{version("core.svc.dev"), version("coordination.svc.dev")}},
		"/apis/core.svc.dev/v1": resources("core.svc.dev",
			metav1.APIResource{Name: "namespaces", Kind: "Namespace"},
			metav1.APIResource{Name: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true},
			metav1.APIResource{Name: "events", Kind: "Event", Namespaced: true}),
		"/apis/coordination.svc.dev/v1": resources("coordination.svc.dev", metav1.APIResource{Name: "leases", Kind: "Lease", Namespaced: true}),
		"/apis/core.svc.dev/v1/namespaces": list("NamespaceList", map[string]any{
			"metadata": map[string]any{"name": "red", "uid": "1", "resourceVersion": "5"}, "status": map[string]any{"phase": "Active"},
		}),
		"/apis/core.svc.dev/v1/serviceaccounts": list("ServiceAccountList"),
	}
}
