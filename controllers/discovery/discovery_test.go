package discovery

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// server answers discovery requests without aggregation: core, and a group of
// an extension server that may be away.
type server struct {
	asked atomic.Int32
	away  atomic.Bool
	gone  atomic.Bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: "metrics.example/v1", Version: "v1"}
	answers := map[string]any{
		"/api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"list", "delete"}},
			{Name: "pods/log", Kind: "Pod", Namespaced: true, Verbs: []string{"get"}},
			{Name: "nodes", Kind: "Node", Verbs: []string{"list"}},
		}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}, Groups: []metav1.APIGroup{
			{Name: "metrics.example", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		}},
		"/apis/metrics.example/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "metrics.example/v1", APIResources: []metav1.APIResource{
			{Name: "samples", Kind: "Sample", Namespaced: true, Verbs: []string{"list"}},
		}},
	}
	if r.URL.Path == "/apis" {
		s.asked.Add(1)
	}
	answer, ok := answers[r.URL.Path]
	switch {
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return
	case s.gone.Load(), s.away.Load() && strings.HasPrefix(r.URL.Path, "/apis/metrics.example"):
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client notices
}

func newDiscovery(t *testing.T) (*Discovery, *server) {
	t.Helper()
	s := &server{}
	near := httptest.NewServer(s)
	t.Cleanup(near.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: near.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, clock.RealClock{}), s
}

func names(s Snapshot) string {
	var names []string
	for _, r := range s.Resources {
		names = append(names, r.Resource)
	}
	slices.Sort(names) // the library gives them in any order
	return strings.Join(names, " ")
}

func TestASnapshotIsAsNewAsItIsAskedFor(t *testing.T) {
	d, s := newDiscovery(t)
	now := time.Now()
	for range 3 {
		found, err := d.Since(t.Context(), now)
		if err != nil || names(found) != "nodes pods samples" || len(found.Failed) > 0 {
			t.Fatalf("%s, %v, %v", names(found), found.Failed, err)
		}
	}
	if asked := s.asked.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := d.Since(t.Context(), time.Now()); err != nil || s.asked.Load() != 2 {
		t.Errorf("asked %d times, %v", s.asked.Load(), err)
	}
}

func TestAGroupThatFailsIsReportedWithWhatItHad(t *testing.T) {
	d, s := newDiscovery(t)
	group := schema.GroupVersion{Group: "metrics.example", Version: "v1"}
	s.away.Store(true)
	found, err := d.Since(t.Context(), time.Now())
	if failure := found.Failed[group]; err != nil || names(found) != "nodes pods" || failure.Err == nil || failure.Known {
		t.Errorf("not known yet: %s, %v, %v", names(found), found.Failed, err)
	}
	s.away.Store(false)
	if found, err = d.Since(t.Context(), time.Now()); err != nil || len(found.Failed) > 0 {
		t.Errorf("back: %v, %v", found.Failed, err)
	}
	s.away.Store(true)
	found, err = d.Since(t.Context(), time.Now())
	if failure := found.Failed[group]; err != nil || !failure.Known || len(failure.Last) != 1 || failure.Last[0].Resource != "samples" {
		t.Errorf("known: %v, %v", found.Failed, err)
	}
}

func TestNoAnswerAtAllIsAnError(t *testing.T) {
	d, s := newDiscovery(t)
	s.gone.Store(true)
	if found, err := d.Since(t.Context(), time.Now()); err == nil {
		t.Errorf("no error: %v", found)
	}
	s.gone.Store(false)
	if found, err := d.Since(t.Context(), time.Now()); err != nil || len(found.Resources) != 3 {
		t.Errorf("back: %v, %v", found, err)
	}
}

func TestACancelledRequestIsNotRemembered(t *testing.T) {
	d, _ := newDiscovery(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Since(ctx, time.Now()); err == nil {
		t.Error("no error")
	}
	if found, err := d.Since(t.Context(), time.Time{}); err != nil || len(found.Resources) != 3 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestWhatAResourceCan(t *testing.T) {
	r := Resource{Verbs: []string{"list", "delete"}}
	if !r.Can("delete", "list") || r.Can("list", "deletecollection") || !r.Can() {
		t.Errorf("%v", r.Verbs)
	}
}

func TestServes(t *testing.T) {
	d, _ := newDiscovery(t)
	core, absent := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "absent.example", Version: "v1"}
	for _, test := range []struct {
		rule        string
		resource    schema.GroupVersionResource
		subresource string
		want, fails bool
	}{
		{"a subresource that the resource has", core.WithResource("pods"), "log", true, false},
		{"one that it does not have", core.WithResource("pods"), "scale", false, false},
		{"one that another resource has", core.WithResource("nodes"), "log", false, false},
		{"a version that is not served", absent.WithResource("pods"), "log", false, true},
	} {
		got, err := d.Serves(t.Context(), test.resource, test.subresource)
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %t, %v", test.rule, got, err)
		}
	}
}
