package objectwatch

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestFilter(t *testing.T) {
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, test := range []struct{ rule, method, given, want string }{
		{"a watch of an object", "GET", "/api/v1/namespaces/n/configmaps/c?watch=1", "/api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Dc&watch=1"},
		{"a watch of a namespace", "GET", "/api/v1/namespaces/n?watch=true", "/api/v1/namespaces?fieldSelector=metadata.name%3Dn&watch=true"},
		{"a watch of an object in a group", "GET", "/apis/apps/v1/namespaces/n/deployments/d?watch=1&resourceVersion=4", "/apis/apps/v1/namespaces/n/deployments?fieldSelector=metadata.name%3Dd&resourceVersion=4&watch=1"},
		{"any value but 0 and false is a watch", "GET", "/api/v1/namespaces/n/pods/p?watch", "/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Dp&watch="},
		{"a selector is kept", "GET", "/api/v1/namespaces/n/pods/p?watch=1&fieldSelector=spec.nodeName%3Dm", "/api/v1/namespaces/n/pods?fieldSelector=spec.nodeName%3Dm%2Cmetadata.name%3Dp&watch=1"},
		{"a watch of a collection stays", "GET", "/api/v1/namespaces/n/pods?watch=1", "/api/v1/namespaces/n/pods?watch=1"},
		{"a get stays", "GET", "/api/v1/namespaces/n/pods/watch?pretty=1", "/api/v1/namespaces/n/pods/watch?pretty=1"},
		{"a get with watch=0 stays", "GET", "/api/v1/namespaces/n/pods/p?watch=0", "/api/v1/namespaces/n/pods/p?watch=0"},
		{"a subresource stays", "GET", "/api/v1/namespaces/n/pods/p/log?watch=1", "/api/v1/namespaces/n/pods/p/log?watch=1"},
		{"what is proxied stays", "GET", "/api/v1/namespaces/n/pods/p/proxy/a?watch=1", "/api/v1/namespaces/n/pods/p/proxy/a?watch=1"},
		{"a deletion stays", "DELETE", "/api/v1/namespaces/n/pods/p?watch=1", "/api/v1/namespaces/n/pods/p?watch=1"},
		{"other paths stay", "GET", "/version?watch=1", "/version?watch=1"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got string
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.URL.String() }), resolver)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), test.method, test.given, nil))
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
