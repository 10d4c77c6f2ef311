package policyschemas

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/handler3"
)

func TestTheIndexIsReadWhenADocumentIsNeeded(t *testing.T) {
	var indexes atomic.Int32
	answer := func(body any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(body); err != nil {
				t.Error(err)
			}
		}
	}
	m := http.NewServeMux()
	m.Handle("/apis", answer(metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
		Groups: []metav1.APIGroup{
			{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1", Version: "v1"}}},
			{Name: "none.example.com", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "none.example.com/v1", Version: "v1"}}},
		},
	}))
	index := answer(handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{
		"api/v1": {ServerRelativeURL: "/openapi/v3/api/v1?hash=a"}, "apis/apps/v1": {ServerRelativeURL: "/openapi/v3/apis/apps/v1?hash=b"},
	}})
	m.HandleFunc("/openapi/v3", func(w http.ResponseWriter, r *http.Request) {
		indexes.Add(1)
		index(w, r)
	})
	m.Handle("/openapi/v3/apis/apps/v1", answer("the document"))
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	documents := Lazy(client).Discovery().OpenAPIV3()

	for range 2 {
		paths, err := documents.Paths()
		if got := slices.Sorted(maps.Keys(paths)); err != nil || !slices.Equal(got, []string{"api/v1", "apis/apps/v1", "apis/none.example.com/v1"}) || indexes.Load() != 0 {
			t.Fatalf("%v, %v after %d indexes", got, err, indexes.Load())
		}
	}
	paths, err := documents.Paths()
	if err != nil {
		t.Fatal(err)
	}
	if got := paths["apis/apps/v1"].ServerRelativeURL(); got != "/openapi/v3/apis/apps/v1?hash=b" {
		t.Errorf("the document of apps/v1 is at %s", got)
	}
	if got, err := paths["apis/apps/v1"].Schema("application/json"); err != nil || string(got) != "\"the document\"\n" {
		t.Errorf("the document of apps/v1: %s, %v", got, err)
	}
	if got, err := paths["apis/none.example.com/v1"].Schema("application/json"); err == nil || paths["apis/none.example.com/v1"].ServerRelativeURL() != "" {
		t.Errorf("a document that does not exist: %s", got)
	}
	if indexes.Load() != 1 {
		t.Errorf("%d indexes for the documents of one", indexes.Load())
	}
	// From now on the plugin's polls read it, rather than the requests that it admits.
	if paths, err := documents.Paths(); err != nil || len(paths) != 2 || indexes.Load() != 2 {
		t.Errorf("%d paths, %v, %d indexes", len(paths), err, indexes.Load())
	}
}
