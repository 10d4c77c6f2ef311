package nodeproxy

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis"
)

func TestConnectionsIntoContainersNeedTheVerbThatTheirSubresourceDeclares(t *testing.T) {
	const exec = "/api/v1/namespaces/ns/pods/p/exec"
	const node = "/api/v1/nodes/n/proxy/exec/ns/p/c"
	upgrade := http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}}
	for _, test := range []struct {
		rule, method, path, user string
		want                     int
		header                   http.Header
	}{
		{"a reader does not open a websocket to exec", http.MethodGet, exec, "reader", http.StatusForbidden, nil},
		{"a reader does not open a websocket to attach", http.MethodGet, "/api/v1/namespaces/ns/pods/p/attach", "reader", http.StatusForbidden, nil},
		{"a reader does not open a websocket to port-forward", http.MethodGet, "/api/v1/namespaces/ns/pods/p/portforward", "reader", http.StatusForbidden, nil},
		{"a creator opens a websocket to exec", http.MethodGet, exec, "creator", http.StatusOK, nil},
		{"the verb of a POST was authorized before", http.MethodPost, exec, "reader", http.StatusOK, nil},
		{"a reader reads logs", http.MethodGet, "/api/v1/namespaces/ns/pods/p/log", "reader", http.StatusOK, nil},
		{"a reader reads pods", http.MethodGet, "/api/v1/namespaces/ns/pods/p", "reader", http.StatusOK, nil},
		{"a subresource of the same name in another group is not checked", http.MethodGet, "/apis/metrics.k8s.io/v1/namespaces/ns/pods/p/exec", "reader", http.StatusOK, nil},
		{"a reader does not upgrade a connection through a node", http.MethodGet, node, "reader", http.StatusForbidden, upgrade},
		{"a reader does not upgrade it by another method", http.MethodPut, node, "reader", http.StatusForbidden, upgrade},
		{"a creator upgrades a connection through a node", http.MethodGet, node, "creator", http.StatusOK, upgrade},
		{"a reader reads a node's metrics", http.MethodGet, "/api/v1/nodes/n/proxy/metrics", "reader", http.StatusOK, nil},
		{"a reader opens a websocket to a pod's own server", http.MethodGet, "/api/v1/namespaces/ns/pods/p/proxy/ws", "reader", http.StatusOK, upgrade},
	} {
		t.Run(test.rule, func(t *testing.T) {
			creators := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "create" && a.GetUser().GetName() == "creator" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			handler := WithAuthorization(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), creators, serializer.NewCodecFactory(runtime.NewScheme()), NewConnects(apis.Kinds()))
			req := httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil)
			maps.Copy(req.Header, test.header)
			resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
			info, err := resolver.NewRequestInfo(req)
			if err != nil {
				t.Fatal(err)
			}
			ctx := request.WithRequestInfo(request.WithUser(req.Context(), &user.DefaultInfo{Name: test.user}), info)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req.WithContext(ctx))
			if w.Code != test.want {
				t.Errorf("got %d, want %d: %s", w.Code, test.want, w.Body)
			}
		})
	}
}

// Clients hold these connections open for as long as they like.
func TestSubresourcesThatHoldConnectionsOpenAreLongRunning(t *testing.T) {
	want := []string{"attach", "exec", "log", "portforward", "proxy"}
	if got := LongRunning(apis.Kinds()); !slices.Equal(got, want) {
		t.Errorf("long-running are %v, want %v", got, want)
	}
}

func TestARequestForAConnectIsProxied(t *testing.T) {
	connects := NewConnects(apis.Kinds())
	resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for path, want := range map[string]bool{
		"/api/v1/nodes/n/proxy/metrics":                          true,
		"/api/v1/namespaces/ns/pods/p/proxy":                     true,
		"/api/v1/namespaces/ns/services/https:s:web/proxy/a/b":   true,
		"/api/v1/namespaces/ns/pods/p/exec":                      true,
		"/api/v1/namespaces/ns/pods/p/status":                    false,
		"/api/v1/namespaces/ns/pods/proxy":                       false,
		"/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods/p/exec": false,
		"/healthz": false,
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		info, err := resolver.NewRequestInfo(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := connects.Proxies(req.WithContext(request.WithRequestInfo(req.Context(), info))); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}
