package aggregation

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

func TestARequestIsRemoteIfTheAPIServiceOfItsVersionRefersToAServer(t *testing.T) {
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, service := range map[string]*apiregistrationv1.ServiceReference{
		"v1.": nil, "v1.apps": nil, "v1.widgets.example.com": {Name: "widgets"}, "v1.apiregistration.k8s.io": {Name: "widgets"},
	} {
		if err := known.Add(&apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Service: service},
		}); err != nil {
			t.Fatal(err)
		}
	}
	remote := Remote(apiregistrationlisters.NewAPIServiceLister(known))
	for path, want := range map[string]bool{
		"/apis/widgets.example.com/v1/namespaces/ns/widgets/w": true,
		"/apis/widgets.example.com/v1":                         true,
		"/apis/widgets.example.com/v2/widgets":                 false,
		"/apis/widgets.example.com":                            false,
		"/apis/apps/v1/deployments":                            false,
		"/apis/apiregistration.k8s.io/v1/apiservices":          false,
		"/apis":        false,
		"/api/v1/pods": false,
		"/healthz":     false,
	} {
		if got := remote(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}
